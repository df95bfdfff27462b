"""
A failure knows whether its provider said since that it took the message: a preview of a requeue reads no deliveries.

Each step is a transaction of its own, so that no lock is held while another is waited for; all of it can be done twice.
What is reported already is noted a row at a time, in nobody's way.
"""

from alembic import op

revision = "0026_pre_reported_failures"
down_revision = "0025_pre_undecided_dead_letters"
branch_labels = None
depends_on = None

#: As 0007 has it, where the three places are empty: what a delivery's report says when it enters these states or changes
#: within them. Of its own search path: whoever restores a dump's rows has none.
_NOTE = """
CREATE OR REPLACE FUNCTION note_failure() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off
    SET search_path FROM CURRENT AS $$
DECLARE
    cause record;
BEGIN
    IF TG_OP = 'DELETE' THEN
        DELETE FROM failure WHERE send_id = OLD.send_id AND row_no = OLD.row_no;
        RETURN NULL;
    END IF;
    IF NEW.status NOT IN ('failed', 'dead_lettered', 'unsure') THEN
        DELETE FROM failure WHERE send_id = NEW.send_id AND row_no = NEW.row_no;
        RETURN NULL;
    END IF;
    SELECT a.signature, a.code, a.outcome, a.provider INTO cause
    FROM attempt a
    WHERE a.send_id = NEW.send_id AND a.row_no = NEW.row_no AND a.epoch = NEW.epoch AND a.became = NEW.status
    ORDER BY a.ended_at DESC, a.number DESC LIMIT 1;
    INSERT INTO failure AS f (send_id, row_no, epoch, tenant_id, channel, provider, status, outcome, code, signature,
                              attempts, failed_at, proving, refused, address_hash{column})
    SELECT NEW.send_id, NEW.row_no, NEW.epoch, s.tenant_id, NEW.channel, coalesce(cause.provider, NEW.provider),
           NEW.status, cause.outcome, cause.code,
           coalesce(cause.signature,
                    left(encode(sha256(convert_to(concat_ws(chr(31), NEW.channel, NEW.status, cause.code,
                                                            coalesce(NEW.last_error, '')), 'UTF8')), 'hex'), 12)),
           NEW.attempt_count, coalesce(NEW.settled_at, NEW.last_attempt_at, now()), NEW.prove_at IS NOT NULL,
           TG_OP = 'INSERT', address_hash(NEW.channel, NEW.address){value}
    FROM send s
    WHERE s.id = NEW.send_id
    ON CONFLICT (send_id, row_no) DO UPDATE
    SET epoch = excluded.epoch, provider = excluded.provider, status = excluded.status, outcome = excluded.outcome,
        code = excluded.code, signature = excluded.signature, attempts = excluded.attempts,
        failed_at = excluded.failed_at, proving = excluded.proving{update};
    RETURN NULL;
END
$$
"""
_REPORTED = {
    "column": ", reported",
    "value": ", coalesce(NEW.receipt_status NOT IN ('failed', 'undelivered'), false)",
    "update": ", reported = excluded.reported",
}
_NOTE_REPORT = """
CREATE OR REPLACE FUNCTION note_report() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off
    SET search_path FROM CURRENT AS $$
BEGIN
    UPDATE failure SET reported = coalesce(NEW.receipt_status NOT IN ('failed', 'undelivered'), false)
    WHERE send_id = NEW.send_id AND row_no = NEW.row_no;
    RETURN NULL;
END
$$
"""
_TRIGGER = """
CREATE OR REPLACE TRIGGER note_report AFTER UPDATE OF receipt_status ON delivery FOR EACH ROW
    WHEN (NEW.status IN ('failed', 'dead_lettered', 'unsure') AND OLD.receipt_status IS DISTINCT FROM NEW.receipt_status)
    EXECUTE FUNCTION note_report()
"""
#: The rows are read before the first is noted: what a report or a requeue has made of one since is looked at under its
#: delivery's lock, taken before its failure's, as everybody does.
_FILL = """
DO $$
DECLARE
    one record;
BEGIN
    FOR one IN
        SELECT f.send_id, f.row_no
        FROM failure f
        JOIN delivery d ON d.send_id = f.send_id AND d.row_no = f.row_no
        WHERE d.receipt_status NOT IN ('failed', 'undelivered') AND NOT f.reported
    LOOP
        PERFORM FROM delivery WHERE send_id = one.send_id AND row_no = one.row_no FOR NO KEY UPDATE;
        UPDATE failure f SET reported = true
        FROM delivery d
        WHERE f.send_id = one.send_id AND f.row_no = one.row_no AND d.send_id = f.send_id AND d.row_no = f.row_no
          AND d.receipt_status NOT IN ('failed', 'undelivered');
        COMMIT;
    END LOOP;
END
$$
"""


def upgrade() -> None:
    with op.get_context().autocommit_block():
        op.execute("ALTER TABLE failure ADD COLUMN IF NOT EXISTS reported boolean DEFAULT false NOT NULL")
        for statement in (_NOTE.format(**_REPORTED), _NOTE_REPORT, _TRIGGER):
            op.execute(statement)
        op.execute("SET statement_timeout = 0")  # of all rows together
        op.execute(_FILL)
        op.execute("SET statement_timeout = '300s'")


def downgrade() -> None:
    op.execute("DROP TRIGGER note_report ON delivery")
    op.execute("DROP FUNCTION note_report()")
    op.execute(_NOTE.format(column="", value="", update=""))
    op.drop_column("failure", "reported")

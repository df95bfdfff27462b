"""
Open failures, in a small table of their own: kept by a trigger on `delivery` (ADR-0011), filled up from what is there.

Of the tables in use it locks `operation`, then `delivery`, for an instant: nothing is read under these locks. What is
there already is copied afterwards, some batches at a time and without a lock that anybody waits for long, so that the
code at work can go on; where both want the same rows, the copy gives way. All of it can be done twice: a run that was
broken off is repeated as a whole.
"""

import sqlalchemy as sa
from alembic import op

revision = "0007_pre_failures"
down_revision = "0006_pre_minutes"
branch_labels = None
depends_on = None

_TABLES = """
CREATE TABLE IF NOT EXISTS address_key (
    only_one boolean DEFAULT true NOT NULL,
    key bytea NOT NULL,
    CONSTRAINT pk_address_key PRIMARY KEY (only_one),
    CONSTRAINT ck_address_key_only_one CHECK (only_one)
);
INSERT INTO address_key (key)
SELECT sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())
              || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()))
ON CONFLICT DO NOTHING;

CREATE TABLE IF NOT EXISTS failure (
    send_id uuid NOT NULL,
    row_no integer NOT NULL,
    epoch smallint NOT NULL,
    tenant_id bigint NOT NULL,
    channel text NOT NULL,
    provider text,
    status text NOT NULL,
    outcome text,
    code text,
    signature text NOT NULL,
    attempts smallint NOT NULL,
    failed_at timestamp with time zone NOT NULL,
    proving boolean NOT NULL,
    refused boolean NOT NULL,
    address_hash bytea NOT NULL,
    discarded_at timestamp with time zone,
    discarded_by text,
    discarded_operation uuid,
    CONSTRAINT pk_failure PRIMARY KEY (send_id, row_no),
    CONSTRAINT ck_failure_status CHECK (status IN ('failed', 'dead_lettered', 'unsure')),
    CONSTRAINT ck_failure_proving CHECK (NOT proving OR status = 'unsure'),
    CONSTRAINT ck_failure_discarded CHECK ((discarded_at IS NULL) = (discarded_by IS NULL)
        AND (discarded_at IS NULL) = (discarded_operation IS NULL))
);
CREATE INDEX IF NOT EXISTS ix_failure_status ON failure (status, failed_at DESC, send_id, row_no);
CREATE INDEX IF NOT EXISTS ix_failure_signature ON failure (signature, failed_at DESC, send_id, row_no);
CREATE INDEX IF NOT EXISTS ix_failure_address_hash ON failure (address_hash);
CREATE INDEX IF NOT EXISTS ix_failure_discarded ON failure (send_id, row_no) WHERE discarded_at IS NOT NULL;

CREATE TABLE IF NOT EXISTS failure_note (
    signature text NOT NULL,
    text text NOT NULL,
    author text NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT pk_failure_note PRIMARY KEY (signature)
);
CREATE TABLE IF NOT EXISTS failure_operation (
    signature text NOT NULL,
    operation_id uuid NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT pk_failure_operation PRIMARY KEY (signature, operation_id)
);
CREATE TABLE IF NOT EXISTS failed_job (
    id bigint GENERATED ALWAYS AS IDENTITY,
    at timestamp with time zone DEFAULT now() NOT NULL,
    queue text NOT NULL,
    job text NOT NULL,
    kind text NOT NULL,
    send_id uuid,
    tenant_id bigint,
    error text NOT NULL,
    starts integer,
    CONSTRAINT pk_failed_job PRIMARY KEY (id),
    CONSTRAINT ck_failed_job_kind CHECK (kind IN ('raised', 'set_aside')),
    CONSTRAINT ck_failed_job_error CHECK (char_length(error) <= 1024)
)
"""

_HASH = """
CREATE OR REPLACE FUNCTION address_hash(channel text, address text) RETURNS bytea LANGUAGE sql STABLE AS $$
    SELECT substring(sha256(k.key || sha256(k.key || convert_to(channel || ':' || lower(address), 'UTF8'))) FOR 16)
    FROM address_key k
$$
"""

#: Without its own settings a plan made while `attempt` was empty would read all of it for each failure.
_NOTE = """
CREATE OR REPLACE FUNCTION note_failure() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
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
                              attempts, failed_at, proving, refused, address_hash)
    SELECT NEW.send_id, NEW.row_no, NEW.epoch, s.tenant_id, NEW.channel, coalesce(cause.provider, NEW.provider),
           NEW.status, cause.outcome, cause.code,
           coalesce(cause.signature,
                    left(encode(sha256(convert_to(concat_ws(chr(31), NEW.channel, NEW.status, cause.code,
                                                            coalesce(NEW.last_error, '')), 'UTF8')), 'hex'), 12)),
           NEW.attempt_count, coalesce(NEW.settled_at, NEW.last_attempt_at, now()), NEW.prove_at IS NOT NULL,
           TG_OP = 'INSERT', address_hash(NEW.channel, NEW.address)
    FROM send s
    WHERE s.id = NEW.send_id
    ON CONFLICT (send_id, row_no) DO UPDATE
    SET epoch = excluded.epoch, provider = excluded.provider, status = excluded.status, outcome = excluded.outcome,
        code = excluded.code, signature = excluded.signature, attempts = excluded.attempts,
        failed_at = excluded.failed_at, proving = excluded.proving;
    RETURN NULL;
END
$$
"""

#: A submission's rows are stored before their send: what is refused is noted when the transaction ends.
_TRIGGERS = """
CREATE CONSTRAINT TRIGGER note_refused AFTER INSERT ON delivery DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (NEW.status IN ('failed', 'dead_lettered', 'unsure')) EXECUTE FUNCTION note_failure();
CREATE TRIGGER note_failure AFTER UPDATE OF status, prove_at, epoch ON delivery FOR EACH ROW
    WHEN ((OLD.status IN ('failed', 'dead_lettered', 'unsure') OR NEW.status IN ('failed', 'dead_lettered', 'unsure'))
          AND (OLD.status <> NEW.status OR OLD.epoch <> NEW.epoch
               OR (OLD.prove_at IS NULL) <> (NEW.prove_at IS NULL)))
    EXECUTE FUNCTION note_failure();
CREATE TRIGGER forget_failure AFTER DELETE ON delivery FOR EACH ROW
    WHEN (OLD.status IN ('failed', 'dead_lettered', 'unsure')) EXECUTE FUNCTION note_failure()
"""

#: Milliseconds for which a page waits for the code at work: less than what Postgres calls a deadlock (1 s), so that it is
#: always the page that gives way, and is done again.
_GIVES_WAY_MS = 100

#: From here on the trigger notes what changes. A row that left these states between being read and being copied is
#: taken out again at the end; one that was noted meanwhile is newer (ON CONFLICT, and the place of what is deleted).
_FILL = """
DO $$
DECLARE
    after_send uuid := '00000000-0000-0000-0000-000000000000';
    after_batch integer := 0;
    page record;
BEGIN
    <<pages>>
    LOOP
        LOOP
            BEGIN
                SELECT array_agg(b.send_id ORDER BY b.send_id, b.batch_no) AS sends,
                       array_agg(b.batch_no ORDER BY b.send_id, b.batch_no) AS batches
                INTO page
                FROM (
                    SELECT send_id, batch_no FROM batch
                    WHERE (send_id, batch_no) > (after_send, after_batch) AND failed + dead_lettered + unsure > 0
                    ORDER BY send_id, batch_no LIMIT 200
                ) AS b;
                EXIT pages WHEN page.sends IS NULL;
                INSERT INTO failure (send_id, row_no, epoch, tenant_id, channel, provider, status, outcome, code, signature,
                                     attempts, failed_at, proving, refused, address_hash)
                SELECT d.send_id, d.row_no, d.epoch, s.tenant_id, d.channel, coalesce(a.provider, d.provider), d.status,
                       a.outcome, a.code,
                       coalesce(a.signature,
                                left(encode(sha256(convert_to(concat_ws(chr(31), d.channel, d.status, a.code,
                                                                        coalesce(d.last_error, '')), 'UTF8')), 'hex'), 12)),
                       d.attempt_count, coalesce(d.settled_at, d.last_attempt_at, now()), d.prove_at IS NOT NULL,
                       d.status = 'failed' AND d.first_attempt_at IS NULL
                           AND d.settled_at < coalesce(s.started_at, 'infinity'),
                       address_hash(d.channel, d.address)
                FROM unnest(page.sends, page.batches) AS p (send_id, batch_no)
                JOIN batch b ON b.send_id = p.send_id AND b.batch_no = p.batch_no
                JOIN send s ON s.id = b.send_id
                JOIN delivery d ON d.send_id = b.send_id AND d.row_no BETWEEN b.first_row AND b.last_row
                               AND d.status IN ('failed', 'dead_lettered', 'unsure')
                LEFT JOIN LATERAL (
                    SELECT signature, code, outcome, provider FROM attempt
                    WHERE attempt.send_id = d.send_id AND attempt.row_no = d.row_no AND attempt.epoch = d.epoch
                      AND attempt.became = d.status
                    ORDER BY ended_at DESC, number DESC LIMIT 1
                ) AS a ON true
                ORDER BY d.send_id, d.row_no
                ON CONFLICT DO NOTHING;
                EXIT;
            EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
                PERFORM pg_sleep(0.05);
            END;
        END LOOP;
        after_send := page.sends[array_upper(page.sends, 1)];
        after_batch := page.batches[array_upper(page.batches, 1)];
        COMMIT;
    END LOOP;
    LOOP
        BEGIN
            WITH gone AS (
                SELECT f.ctid AS place FROM failure f
                WHERE NOT EXISTS (SELECT 1 FROM delivery d WHERE d.send_id = f.send_id AND d.row_no = f.row_no
                                  AND d.status IN ('failed', 'dead_lettered', 'unsure'))
            )
            DELETE FROM failure f USING gone WHERE f.ctid = gone.place;
            EXIT;
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            PERFORM pg_sleep(0.05);
        END;
    END LOOP;
END
$$
"""


def upgrade() -> None:
    op.execute("ALTER TABLE operation DROP CONSTRAINT IF EXISTS ck_operation_kind")
    op.execute(
        "ALTER TABLE operation ADD CONSTRAINT ck_operation_kind"
        " CHECK (kind IN ('requeue', 'discard', 'restore')) NOT VALID"
    )
    op.execute("ALTER TABLE operation VALIDATE CONSTRAINT ck_operation_kind")
    for statement in (*_TABLES.split(";"), _HASH, _NOTE):
        op.execute(statement)
    for trigger in ("note_refused", "note_failure", "forget_failure"):
        op.execute(f"DROP TRIGGER IF EXISTS {trigger} ON delivery")
    for statement in _TRIGGERS.split(";\n"):
        op.execute(statement)
    with op.get_context().autocommit_block():
        op.execute("SET statement_timeout = 0")  # of all pages together
        op.execute(f"SET lock_timeout = {_GIVES_WAY_MS}")
        op.execute(_FILL)
        op.execute("SET lock_timeout = '5s'")
        op.execute("SET statement_timeout = '300s'")


def downgrade() -> None:
    for trigger in ("note_refused", "note_failure", "forget_failure"):
        op.execute(f"DROP TRIGGER {trigger} ON delivery")
    op.execute("DROP FUNCTION note_failure()")
    op.execute("DROP FUNCTION address_hash(text, text)")
    for table in ("failed_job", "failure_operation", "failure_note", "failure", "address_key"):
        op.drop_table(table)
    op.execute("DELETE FROM operation WHERE kind = 'restore'")
    op.execute("ALTER TABLE operation DROP CONSTRAINT ck_operation_kind")
    op.create_check_constraint(op.f("ck_operation_kind"), "operation", sa.text("kind IN ('requeue', 'discard')"))

"""Counts per minute of what happened, for the pages and the metrics."""

from alembic import op

revision = "0006_pre_minutes"
down_revision = "0005_pre_holds"
branch_labels = None
depends_on = None

_COUNTS = (
    "requests", "accepted", "calls", "sent", "failed", "dead_lettered", "unsure", "suppressed", "cancelled", "expired",
    "retried", "throttled", "requeued", "resolved",
)  # fmt: skip


def upgrade() -> None:
    counts = ", ".join(f"{name} bigint NOT NULL DEFAULT 0" for name in _COUNTS)
    op.execute(
        "CREATE TABLE minute_count (minute timestamptz NOT NULL, writer integer NOT NULL, mode text NOT NULL,"
        f" channel text NOT NULL, provider text NOT NULL, took smallint NOT NULL, {counts},"
        " CONSTRAINT pk_minute_count PRIMARY KEY (minute, writer, mode, channel, provider, took),"
        " CONSTRAINT ck_minute_count_mode CHECK (mode IN ('live', 'test')),"
        " CONSTRAINT ck_minute_count_channel CHECK (channel IN ('email', 'sms'))) WITH (fillfactor = 50)"
    )
    op.execute("CREATE INDEX ix_audit_target ON audit (target, id)")
    # The bounds are those of shared.domain.pace; a test holds the two together.
    op.execute(
        "CREATE FUNCTION took_bucket_v1(took interval) RETURNS smallint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$"
        " SELECT (width_bucket(extract(epoch FROM took)::float8, ARRAY[0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5,"
        " 7, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300, 450, 600, 900, 1200, 1800, 2700, 3600, 5400, 7200, 10800,"
        " 14400, 21600, 43200, 86400, 172800, 259200]::float8[]) + 1)::smallint $$"
    )


def downgrade() -> None:
    op.execute("DROP INDEX ix_audit_target")
    op.execute("DROP TABLE minute_count")
    op.execute("DROP FUNCTION took_bucket_v1")

"""
Events, findings, digests and what became of them; and where retention stands.

`tenant` is locked for its foreign keys before `send` gets its columns: nobody who holds `send` writes `tenant`.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0008_pre_digests"
down_revision = "0007_pre_failures"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "notification_count",
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("became", sa.Text(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "became IN ('sent', 'transient', 'dead_lettered')", name=op.f("ck_notification_count_became")
        ),
        sa.PrimaryKeyConstraint("channel", "kind", "became", name=op.f("pk_notification_count")),
    )
    op.create_table(
        "retention_run",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("progress_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("worker", sa.Text(), nullable=False),
        sa.Column(
            "removed", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'::jsonb"), nullable=False
        ),
        sa.Column("longest_ms", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_retention_run")),
    )
    op.create_index(
        "ix_retention_run_started_at", "retention_run", [sa.literal_column("started_at DESC")], unique=False
    )
    op.create_table(
        "digest_channel",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("tenant_id", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("config", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("kinds", postgresql.ARRAY(sa.Text()), nullable=True),
        sa.Column("min_severity", sa.Text(), nullable=False),
        sa.Column("tells_existing", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("enabled", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("retry_base_delay_ms", sa.Integer(), nullable=True),
        sa.Column("max_delivery_attempts", sa.SmallInteger(), nullable=True),
        sa.Column("retention_days", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("baselined_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("events_from", sa.DateTime(timezone=True), nullable=True),
        sa.Column("detected_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_sent_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("wait_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("not_configured", sa.Text(), nullable=True),
        sa.Column("not_configured_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "min_severity IN ('info', 'low', 'medium', 'high', 'critical')", name=op.f("ck_digest_channel_min_severity")
        ),
        sa.CheckConstraint(
            "type IN ('webhook', 'ntfy', 'gotify', 'slack', 'teams', 'email')", name=op.f("ck_digest_channel_type")
        ),
        sa.CheckConstraint(
            "(not_configured IS NULL) = (not_configured_at IS NULL)", name=op.f("ck_digest_channel_not_configured")
        ),
        sa.CheckConstraint("char_length(not_configured) <= 1024", name=op.f("ck_digest_channel_not_configured_length")),
        sa.CheckConstraint(
            "retry_base_delay_ms > 0 AND max_delivery_attempts > 0 AND retention_days > 0",
            name=op.f("ck_digest_channel_settings"),
        ),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenant.id"], name=op.f("fk_digest_channel_tenant_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_digest_channel")),
        sa.UniqueConstraint("name", name=op.f("uq_digest_channel_name")),
    )
    op.create_index(op.f("ix_digest_channel_tenant_id"), "digest_channel", ["tenant_id"], unique=False)
    op.create_table(
        "event",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("tenant_id", sa.BigInteger(), nullable=False),
        sa.Column("dedup_key", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("severity", sa.Text(), nullable=False),
        sa.Column("details", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("finding_key", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("received_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("severity IN ('info', 'low', 'medium', 'high', 'critical')", name=op.f("ck_event_severity")),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenant.id"], name=op.f("fk_event_tenant_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_event")),
        sa.UniqueConstraint("tenant_id", "dedup_key", name=op.f("uq_event_tenant_id_dedup_key")),
    )
    op.create_index(op.f("ix_event_received_at"), "event", ["received_at"], unique=False)
    op.create_index(op.f("ix_event_tenant_id_received_at"), "event", ["tenant_id", "received_at"], unique=False)
    op.create_table(
        "finding",
        sa.Column("tenant_id", sa.BigInteger(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("dedup_key", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("severity", sa.Text(), nullable=False),
        sa.Column("details", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("inactive_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "severity IN ('info', 'low', 'medium', 'high', 'critical')", name=op.f("ck_finding_severity")
        ),
        sa.CheckConstraint("active = (inactive_at IS NULL)", name=op.f("ck_finding_inactive_at")),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenant.id"], name=op.f("fk_finding_tenant_id")),
        sa.PrimaryKeyConstraint("tenant_id", "key", name=op.f("pk_finding")),
    )
    op.create_index(
        "ix_finding_active", "finding", ["tenant_id", "changed_at"], unique=False, postgresql_where=sa.text("active")
    )
    op.create_index(
        "ix_finding_inactive_at",
        "finding",
        ["inactive_at"],
        unique=False,
        postgresql_where=sa.text("inactive_at IS NOT NULL"),
    )
    op.create_index(
        "ix_finding_source", "finding", ["tenant_id", "source"], unique=False, postgresql_where=sa.text("active")
    )
    op.create_table(
        "digest",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("channel_id", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("item_count", sa.Integer(), nullable=False),
        sa.Column("left_count", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("claim_id", sa.Uuid(), nullable=True),
        sa.Column("leased_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("taken_over", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("maybe_known", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("next_attempt_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.Column("reference", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "(status = 'calling') = (claim_id IS NOT NULL) AND (claim_id IS NULL) = (leased_until IS NULL)",
            name=op.f("ck_digest_claim"),
        ),
        sa.CheckConstraint("(status = 'frozen') = (next_attempt_at IS NOT NULL)", name=op.f("ck_digest_frozen")),
        sa.CheckConstraint("(status IN ('sent', 'failed')) = (ended_at IS NOT NULL)", name=op.f("ck_digest_ended_at")),
        sa.CheckConstraint("status IN ('calling', 'frozen', 'sent', 'failed')", name=op.f("ck_digest_status")),
        sa.CheckConstraint("char_length(detail) <= 1024", name=op.f("ck_digest_detail")),
        sa.ForeignKeyConstraint(["channel_id"], ["digest_channel.id"], name=op.f("fk_digest_channel_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_digest")),
    )
    op.create_index(
        "ix_digest_ended_at", "digest", ["ended_at"], unique=False, postgresql_where=sa.text("ended_at IS NOT NULL")
    )
    op.create_index("ix_digest_newest", "digest", ["channel_id", sa.literal_column("created_at DESC")], unique=False)
    op.create_index(
        "ix_digest_open",
        "digest",
        ["channel_id", "created_at"],
        unique=False,
        postgresql_where=sa.text("status IN ('calling', 'frozen')"),
    )
    op.create_table(
        "digest_channel_secret",
        sa.Column("channel_id", sa.BigInteger(), nullable=False),
        sa.Column("secret", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.ForeignKeyConstraint(
            ["channel_id"], ["digest_channel.id"], name=op.f("fk_digest_channel_secret_channel_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("channel_id", name=op.f("pk_digest_channel_secret")),
    )
    op.create_table(
        "digest_run",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("channel_id", sa.BigInteger(), nullable=True),
        sa.Column("asked_by", sa.Text(), nullable=False),
        sa.Column("asked_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.Column("result", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.ForeignKeyConstraint(
            ["channel_id"], ["digest_channel.id"], name=op.f("fk_digest_run_channel_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_digest_run")),
    )
    op.create_index(op.f("ix_digest_run_asked_at"), "digest_run", ["asked_at"], unique=False)
    op.create_index(op.f("ix_digest_run_channel_id"), "digest_run", ["channel_id"], unique=False)
    op.create_table(
        "notification",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("channel_id", sa.BigInteger(), nullable=False),
        sa.Column("dedup_key", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("severity", sa.Text(), nullable=False),
        sa.Column("details", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("finding_key", sa.Text(), nullable=True),
        sa.Column("occurred_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("attempt_count", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("owed_since", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("next_attempt_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("sent_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("final_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("dispatch_batch_id", sa.Uuid(), nullable=True),
        sa.CheckConstraint("(status = 'sent') = (sent_at IS NOT NULL)", name=op.f("ck_notification_sent_at")),
        sa.CheckConstraint(
            "(status IN ('pending', 'retrying')) = (final_at IS NULL)", name=op.f("ck_notification_final_at")
        ),
        sa.CheckConstraint(
            "severity IN ('info', 'low', 'medium', 'high', 'critical')", name=op.f("ck_notification_severity")
        ),
        sa.CheckConstraint(
            "status <> 'sent' OR dispatch_batch_id IS NOT NULL", name=op.f("ck_notification_dispatch_batch_id")
        ),
        sa.CheckConstraint(
            "status IN ('pending', 'retrying', 'sent', 'suppressed', 'dead_lettered')",
            name=op.f("ck_notification_status"),
        ),
        sa.CheckConstraint(
            "(final_at IS NULL) = (next_attempt_at IS NOT NULL)", name=op.f("ck_notification_next_attempt_at")
        ),
        sa.CheckConstraint("char_length(last_error) <= 1024", name=op.f("ck_notification_last_error")),
        sa.ForeignKeyConstraint(["channel_id"], ["digest_channel.id"], name=op.f("fk_notification_channel_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_notification")),
        sa.UniqueConstraint("channel_id", "dedup_key", name=op.f("uq_notification_channel_id_dedup_key")),
    )
    op.create_index(
        "ix_notification_batch",
        "notification",
        ["dispatch_batch_id"],
        unique=False,
        postgresql_where=sa.text("dispatch_batch_id IS NOT NULL"),
    )
    op.create_index(
        "ix_notification_dead",
        "notification",
        ["channel_id", "id"],
        unique=False,
        postgresql_where=sa.text("status = 'dead_lettered'"),
    )
    op.create_index(
        "ix_notification_due",
        "notification",
        ["channel_id", "next_attempt_at", "id"],
        unique=False,
        postgresql_where=sa.text("status IN ('pending', 'retrying') AND dispatch_batch_id IS NULL"),
    )
    op.create_index(
        "ix_notification_final",
        "notification",
        ["channel_id", "final_at"],
        unique=False,
        postgresql_where=sa.text("final_at IS NOT NULL"),
    )
    op.create_index(
        "ix_notification_newest", "notification", ["channel_id", sa.literal_column("id DESC")], unique=False
    )
    op.create_index(
        "ix_notification_open",
        "notification",
        ["channel_id", "status"],
        unique=False,
        postgresql_where=sa.text("final_at IS NULL"),
    )
    op.add_column("send", sa.Column("forgotten_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("send", sa.Column("emptied_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    op.drop_column("send", "emptied_at")
    op.drop_column("send", "forgotten_at")
    op.drop_index("ix_notification_open", table_name="notification", postgresql_where=sa.text("final_at IS NULL"))
    op.drop_index("ix_notification_newest", table_name="notification")
    op.drop_index("ix_notification_final", table_name="notification", postgresql_where=sa.text("final_at IS NOT NULL"))
    op.drop_index(
        "ix_notification_due",
        table_name="notification",
        postgresql_where=sa.text("status IN ('pending', 'retrying') AND dispatch_batch_id IS NULL"),
    )
    op.drop_index(
        "ix_notification_dead", table_name="notification", postgresql_where=sa.text("status = 'dead_lettered'")
    )
    op.drop_index(
        "ix_notification_batch", table_name="notification", postgresql_where=sa.text("dispatch_batch_id IS NOT NULL")
    )
    op.drop_table("notification")
    op.drop_index(op.f("ix_digest_run_channel_id"), table_name="digest_run")
    op.drop_index(op.f("ix_digest_run_asked_at"), table_name="digest_run")
    op.drop_table("digest_run")
    op.drop_table("digest_channel_secret")
    op.drop_index("ix_digest_open", table_name="digest", postgresql_where=sa.text("status IN ('calling', 'frozen')"))
    op.drop_index("ix_digest_newest", table_name="digest")
    op.drop_index("ix_digest_ended_at", table_name="digest", postgresql_where=sa.text("ended_at IS NOT NULL"))
    op.drop_table("digest")
    op.drop_index("ix_finding_source", table_name="finding", postgresql_where=sa.text("active"))
    op.drop_index("ix_finding_inactive_at", table_name="finding", postgresql_where=sa.text("inactive_at IS NOT NULL"))
    op.drop_index("ix_finding_active", table_name="finding", postgresql_where=sa.text("active"))
    op.drop_table("finding")
    op.drop_index(op.f("ix_event_tenant_id_received_at"), table_name="event")
    op.drop_index(op.f("ix_event_received_at"), table_name="event")
    op.drop_table("event")
    op.drop_index(op.f("ix_digest_channel_tenant_id"), table_name="digest_channel")
    op.drop_table("digest_channel")
    op.drop_index("ix_retention_run_started_at", table_name="retention_run")
    op.drop_table("retention_run")
    op.drop_table("notification_count")

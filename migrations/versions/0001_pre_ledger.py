"""The ledger: tenants and keys, sends and deliveries, batches, attempts, chains, workers, the sandbox inbox."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001_pre_ledger"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "attempt",
        sa.Column("send_id", sa.Uuid(), nullable=False),
        sa.Column("row_no", sa.Integer(), nullable=False),
        sa.Column("claim_id", sa.Uuid(), nullable=False),
        sa.Column("epoch", sa.SmallInteger(), nullable=False),
        sa.Column("number", sa.SmallInteger(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("became", sa.Text(), nullable=False),
        sa.Column("code", sa.Text(), nullable=True),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.Column("signature", sa.Text(), nullable=True),
        sa.Column("provider_ref", sa.Text(), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("evidence", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.CheckConstraint(
            "became IN ('owed', 'sending', 'retrying', 'sent', 'failed', 'dead_lettered', 'unsure', 'suppressed', 'cancelled', 'expired')",
            name=op.f("ck_attempt_became"),
        ),
        sa.CheckConstraint("char_length(detail) <= 1024", name=op.f("ck_attempt_detail")),
        sa.PrimaryKeyConstraint("send_id", "row_no", "claim_id", name=op.f("pk_attempt")),
    )
    op.create_index(
        "ix_attempt_failures", "attempt", ["ended_at"], unique=False, postgresql_where=sa.text("signature IS NOT NULL")
    )
    op.create_index(
        "ix_attempt_signature",
        "attempt",
        ["signature", "ended_at"],
        unique=False,
        postgresql_where=sa.text("signature IS NOT NULL"),
    )
    op.create_table(
        "delivery",
        sa.Column("send_id", sa.Uuid(), nullable=False),
        sa.Column("row_no", sa.Integer(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), server_default=sa.text("'owed'"), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("params", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("reference", sa.Text(), nullable=True),
        sa.Column("segments", sa.SmallInteger(), nullable=True),
        sa.Column("attempt_count", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("epoch", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("claim_id", sa.Uuid(), nullable=True),
        sa.Column("next_attempt_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("first_attempt_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_attempt_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("settled_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("provider", sa.Text(), nullable=True),
        sa.Column("provider_ref", sa.Text(), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("receipt_status", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "(status = 'sending') = (claim_id IS NOT NULL) OR status = 'unsure'", name=op.f("ck_delivery_claim")
        ),
        sa.CheckConstraint(
            "(status IN ('owed', 'sending', 'retrying')) = (settled_at IS NULL)", name=op.f("ck_delivery_settled_at")
        ),
        sa.CheckConstraint("channel IN ('email', 'sms')", name=op.f("ck_delivery_channel")),
        sa.CheckConstraint("status <> 'retrying' OR next_attempt_at IS NOT NULL", name=op.f("ck_delivery_retrying")),
        sa.CheckConstraint(
            "status IN ('owed', 'retrying') OR next_attempt_at IS NULL", name=op.f("ck_delivery_next_attempt_at")
        ),
        sa.CheckConstraint(
            "status IN ('owed', 'sending', 'retrying', 'sent', 'failed', 'dead_lettered', 'unsure', 'suppressed', 'cancelled', 'expired')",
            name=op.f("ck_delivery_status"),
        ),
        sa.CheckConstraint("char_length(last_error) <= 1024", name=op.f("ck_delivery_last_error")),
        sa.PrimaryKeyConstraint("send_id", "row_no", name=op.f("pk_delivery")),
        postgresql_with={"fillfactor": "70"},
    )
    op.create_table(
        "failure_group",
        sa.Column("signature", sa.Text(), nullable=False),
        sa.Column("version", sa.SmallInteger(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("first_seen_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("signature", name=op.f("pk_failure_group")),
    )
    op.create_table(
        "periodic_slot",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("slot", sa.BigInteger(), nullable=False),
        sa.Column("claimed_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_periodic_slot")),
    )
    op.create_table(
        "provider_state",
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("credential", sa.Text(), nullable=False),
        sa.Column("last_accepted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("configuration_error", sa.Text(), nullable=True),
        sa.Column("configuration_error_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("provider", "credential", name=op.f("pk_provider_state")),
    )
    op.create_table(
        "sandbox_message",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("key", sa.Uuid(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("sender", sa.Text(), nullable=True),
        sa.Column("reply_to", sa.Text(), nullable=True),
        sa.Column("subject", sa.Text(), nullable=True),
        sa.Column("text", sa.Text(), nullable=True),
        sa.Column("html", sa.Text(), nullable=True),
        sa.Column("received_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("channel IN ('email', 'sms')", name=op.f("ck_sandbox_message_channel")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sandbox_message")),
        sa.UniqueConstraint("key", name=op.f("uq_sandbox_message_key")),
    )
    op.create_index(op.f("ix_sandbox_message_received_at"), "sandbox_message", ["received_at"], unique=False)
    op.create_table(
        "tenant",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("default_region", sa.Text(), nullable=True),
        sa.Column("email_from", sa.Text(), nullable=True),
        sa.Column("sms_from", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("default_region ~ '^[A-Z]{2}$'", name=op.f("ck_tenant_region")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tenant")),
        sa.UniqueConstraint("name", name=op.f("uq_tenant_name")),
    )
    op.create_table(
        "worker",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_worker")),
    )
    op.create_table(
        "api_key",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("tenant_id", sa.BigInteger(), nullable=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("prefix", sa.Text(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("mode IN ('live', 'test')", name=op.f("ck_api_key_mode")),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenant.id"], name=op.f("fk_api_key_tenant_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_key")),
        sa.UniqueConstraint("hash", name=op.f("uq_api_key_hash")),
    )
    op.create_index(op.f("ix_api_key_tenant_id"), "api_key", ["tenant_id"], unique=False)
    op.create_table(
        "idempotency_key",
        sa.Column("tenant_id", sa.BigInteger(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.LargeBinary(), nullable=False),
        sa.Column("owner", sa.Uuid(), nullable=False),
        sa.Column("locked_until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("send_id", sa.Uuid(), nullable=True),
        sa.Column("answer", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("(send_id IS NULL) = (answer IS NULL)", name=op.f("ck_idempotency_key_answer")),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenant.id"], name=op.f("fk_idempotency_key_tenant_id")),
        sa.PrimaryKeyConstraint("tenant_id", "key", name=op.f("pk_idempotency_key")),
        sa.UniqueConstraint("tenant_id", "send_id", name=op.f("uq_idempotency_key_tenant_id_send_id")),
    )
    op.create_index(op.f("ix_idempotency_key_created_at"), "idempotency_key", ["created_at"], unique=False)
    op.create_table(
        "suppression",
        sa.Column("tenant_id", sa.BigInteger(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("channel IN ('email', 'sms')", name=op.f("ck_suppression_channel")),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenant.id"], name=op.f("fk_suppression_tenant_id")),
        sa.PrimaryKeyConstraint("tenant_id", "channel", "address", name=op.f("pk_suppression")),
    )
    op.create_table(
        "send",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.BigInteger(), nullable=False),
        sa.Column("api_key_id", sa.BigInteger(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("lane", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("content", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column(
            "params", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'::jsonb"), nullable=False
        ),
        sa.Column("accepted", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column(
            "duplicates", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'::jsonb"), nullable=False
        ),
        sa.Column("segments", sa.Integer(), nullable=True),
        sa.Column("send_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("valid_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("queued_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("completed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("cancelled_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("paused_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("pause_reason", sa.Text(), nullable=True),
        sa.Column("resumed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("settled_counts", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.CheckConstraint("(status = 'cancelled') = (cancelled_at IS NOT NULL)", name=op.f("ck_send_cancelled_at")),
        sa.CheckConstraint("(status = 'completed') = (completed_at IS NOT NULL)", name=op.f("ck_send_completed_at")),
        sa.CheckConstraint("(status = 'paused') = (paused_at IS NOT NULL)", name=op.f("ck_send_paused_at")),
        sa.CheckConstraint("lane IN ('single', 'bulk')", name=op.f("ck_send_lane")),
        sa.CheckConstraint("mode IN ('live', 'test')", name=op.f("ck_send_mode")),
        sa.CheckConstraint("status <> 'scheduled' OR send_at IS NOT NULL", name=op.f("ck_send_scheduled")),
        sa.CheckConstraint(
            "status IN ('pending', 'queued', 'scheduled', 'sending', 'paused', 'completed', 'cancelled')",
            name=op.f("ck_send_status"),
        ),
        sa.CheckConstraint(
            "status NOT IN ('sending', 'completed') OR started_at IS NOT NULL", name=op.f("ck_send_started_at")
        ),
        sa.ForeignKeyConstraint(["api_key_id"], ["api_key.id"], name=op.f("fk_send_api_key_id")),
        sa.ForeignKeyConstraint(["tenant_id"], ["tenant.id"], name=op.f("fk_send_tenant_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_send")),
    )
    op.create_index(
        "ix_send_active",
        "send",
        ["id"],
        unique=False,
        postgresql_where=sa.text("status IN ('pending', 'queued', 'scheduled', 'sending', 'paused')"),
    )
    op.create_index(
        "ix_send_cancelling",
        "send",
        ["id"],
        unique=False,
        postgresql_where=sa.text("status = 'cancelled' AND settled_counts IS NULL"),
    )
    op.create_index("ix_send_tenant", "send", ["tenant_id", sa.literal_column("id DESC")], unique=False)
    op.create_index(
        "ix_send_tenant_status", "send", ["tenant_id", "status", sa.literal_column("id DESC")], unique=False
    )
    op.create_table(
        "batch",
        sa.Column("send_id", sa.Uuid(), nullable=False),
        sa.Column("batch_no", sa.Integer(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("first_row", sa.Integer(), nullable=False),
        sa.Column("last_row", sa.Integer(), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("holder", sa.Uuid(), nullable=True),
        sa.Column("chain_no", sa.SmallInteger(), nullable=True),
        sa.Column("leased_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("progress_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("settled_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("recovery_count", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("owed", sa.Integer(), nullable=False),
        sa.Column("sending", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("retrying", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("sent", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("failed", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("dead_lettered", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("unsure", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("suppressed", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("cancelled", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("expired", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.CheckConstraint("channel IN ('email', 'sms')", name=op.f("ck_batch_channel")),
        sa.CheckConstraint(
            "(holder IS NULL) = (leased_at IS NULL) AND (holder IS NULL) = (chain_no IS NULL)",
            name=op.f("ck_batch_lease"),
        ),
        sa.CheckConstraint(
            "owed >= 0 AND sending >= 0 AND retrying >= 0 AND sent >= 0 AND failed >= 0 AND dead_lettered >= 0 AND unsure >= 0 AND suppressed >= 0 AND cancelled >= 0 AND expired >= 0 AND owed + sending + retrying + sent + failed + dead_lettered + unsure + suppressed + cancelled + expired = last_row - first_row + 1",
            name=op.f("ck_batch_books"),
        ),
        sa.CheckConstraint("settled_at IS NULL OR owed + sending + retrying = 0", name=op.f("ck_batch_settled_at")),
        sa.ForeignKeyConstraint(["send_id"], ["send.id"], name=op.f("fk_batch_send_id")),
        sa.PrimaryKeyConstraint("send_id", "batch_no", name=op.f("pk_batch")),
        postgresql_with={"fillfactor": "70"},
    )
    op.create_index(
        "ix_batch_due",
        "batch",
        ["send_id", "channel", "due_at", "batch_no"],
        unique=False,
        postgresql_where=sa.text("holder IS NULL AND due_at IS NOT NULL"),
    )
    op.create_index("ix_batch_held", "batch", ["holder"], unique=False, postgresql_where=sa.text("holder IS NOT NULL"))
    op.create_index(
        "ix_batch_open", "batch", ["send_id", "batch_no"], unique=False, postgresql_where=sa.text("settled_at IS NULL")
    )
    op.create_table(
        "chain",
        sa.Column("send_id", sa.Uuid(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("chain_no", sa.SmallInteger(), nullable=False),
        sa.Column("token", sa.Uuid(), nullable=False),
        sa.Column("holder", sa.Uuid(), nullable=True),
        sa.Column("queued_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("channel IN ('email', 'sms')", name=op.f("ck_chain_channel")),
        sa.CheckConstraint("(holder IS NULL) = (started_at IS NULL)", name=op.f("ck_chain_running")),
        sa.ForeignKeyConstraint(["send_id"], ["send.id"], name=op.f("fk_chain_send_id")),
        sa.PrimaryKeyConstraint("send_id", "channel", "chain_no", name=op.f("pk_chain")),
    )
    op.create_index("ix_chain_held", "chain", ["holder"], unique=False, postgresql_where=sa.text("holder IS NOT NULL"))


def downgrade() -> None:
    op.drop_index("ix_chain_held", table_name="chain", postgresql_where=sa.text("holder IS NOT NULL"))
    op.drop_table("chain")
    op.drop_index("ix_batch_open", table_name="batch", postgresql_where=sa.text("settled_at IS NULL"))
    op.drop_index("ix_batch_held", table_name="batch", postgresql_where=sa.text("holder IS NOT NULL"))
    op.drop_index("ix_batch_due", table_name="batch", postgresql_where=sa.text("holder IS NULL AND due_at IS NOT NULL"))
    op.drop_table("batch")
    op.drop_index("ix_send_tenant_status", table_name="send")
    op.drop_index("ix_send_tenant", table_name="send")
    op.drop_index(
        "ix_send_cancelling",
        table_name="send",
        postgresql_where=sa.text("status = 'cancelled' AND settled_counts IS NULL"),
    )
    op.drop_index(
        "ix_send_active",
        table_name="send",
        postgresql_where=sa.text("status IN ('pending', 'queued', 'scheduled', 'sending', 'paused')"),
    )
    op.drop_table("send")
    op.drop_table("suppression")
    op.drop_index(op.f("ix_idempotency_key_created_at"), table_name="idempotency_key")
    op.drop_table("idempotency_key")
    op.drop_index(op.f("ix_api_key_tenant_id"), table_name="api_key")
    op.drop_table("api_key")
    op.drop_table("worker")
    op.drop_table("tenant")
    op.drop_index(op.f("ix_sandbox_message_received_at"), table_name="sandbox_message")
    op.drop_table("sandbox_message")
    op.drop_table("provider_state")
    op.drop_table("periodic_slot")
    op.drop_table("failure_group")
    op.drop_table("delivery")
    op.drop_index("ix_attempt_signature", table_name="attempt", postgresql_where=sa.text("signature IS NOT NULL"))
    op.drop_index("ix_attempt_failures", table_name="attempt", postgresql_where=sa.text("signature IS NOT NULL"))
    op.drop_table("attempt")

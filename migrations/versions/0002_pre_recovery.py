"""
Recovery: proving what is unsure, receipts, passes of the reconciler, bulk operations, audit.

Of the tables in use it locks `batch` alone: two locked in one transaction meet a running statement that has one and
wants the other, and one of the two is a deadlock's victim. `delivery` follows in a migration of its own.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002_pre_recovery"
down_revision = "0001_pre_ledger"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("operator", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("count", sa.Integer(), nullable=True),
        sa.Column("result", sa.Text(), nullable=False),
        sa.Column("detail", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
    )
    op.create_index("ix_audit_at", "audit", [sa.literal_column("at DESC")], unique=False)
    op.create_table(
        "operation",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("operator", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("filter", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("accepts_duplicates", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("canary", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("as_of", sa.DateTime(timezone=True), nullable=False),
        sa.Column("run_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("total", sa.Integer(), nullable=False),
        sa.Column("done", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("skipped", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("stage_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("why", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "(status IN ('stopped', 'undone', 'done')) = (ended_at IS NOT NULL)", name=op.f("ck_operation_ended_at")
        ),
        sa.CheckConstraint("kind IN ('requeue', 'discard')", name=op.f("ck_operation_kind")),
        sa.CheckConstraint(
            "status IN ('scheduled', 'running', 'stopped', 'undone', 'done')", name=op.f("ck_operation_status")
        ),
        sa.CheckConstraint("done + skipped <= total", name=op.f("ck_operation_counts")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_operation")),
    )
    op.create_index(
        "ix_operation_open",
        "operation",
        ["run_at"],
        unique=False,
        postgresql_where=sa.text("status IN ('scheduled', 'running')"),
    )
    op.create_table(
        "receipt",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("send_id", sa.Uuid(), nullable=False),
        sa.Column("row_no", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.SmallInteger(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("provider_ref", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("code", sa.Text(), nullable=True),
        sa.Column("received_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("applied_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_receipt")),
    )
    op.create_index("ix_receipt_delivery", "receipt", ["send_id", "row_no"], unique=False)
    op.create_index(
        "ix_receipt_waiting", "receipt", ["id"], unique=False, postgresql_where=sa.text("applied_at IS NULL")
    )
    op.create_index(
        "ix_receipt_provider_ref",
        "receipt",
        ["provider_ref"],
        unique=False,
        postgresql_where=sa.text("provider_ref IS NOT NULL"),
    )
    op.create_table(
        "recovery_pass",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("worker", sa.Text(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "counts", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'::jsonb"), nullable=False
        ),
        sa.Column("error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_recovery_pass")),
    )
    op.create_index(
        "ix_recovery_pass_started_at", "recovery_pass", [sa.literal_column("started_at DESC")], unique=False
    )
    op.create_table(
        "operation_item",
        sa.Column("operation_id", sa.Uuid(), nullable=False),
        sa.Column("send_id", sa.Uuid(), nullable=False),
        sa.Column("row_no", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.SmallInteger(), nullable=False),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("why", sa.Text(), nullable=True),
        sa.CheckConstraint("result IN ('done', 'skipped')", name=op.f("ck_operation_item_result")),
        sa.PrimaryKeyConstraint("operation_id", "send_id", "row_no", name=op.f("pk_operation_item")),
    )
    op.create_index(
        "ix_operation_item_open",
        "operation_item",
        ["operation_id", "send_id", "row_no"],
        unique=False,
        postgresql_where=sa.text("result IS NULL"),
    )
    op.add_column("batch", sa.Column("proving", sa.Integer(), server_default=sa.text("0"), nullable=False))
    op.add_column("batch", sa.Column("prove_at", sa.DateTime(timezone=True), nullable=True))
    op.create_index(
        "ix_batch_prove", "batch", ["prove_at"], unique=False, postgresql_where=sa.text("prove_at IS NOT NULL")
    )
    op.create_index(
        "ix_batch_recovered",
        "batch",
        ["send_id", "batch_no"],
        unique=False,
        postgresql_where=sa.text("recovery_count > 0 AND settled_at IS NULL"),
    )
    # NOT VALID: existing rows meet the rules by their defaults, and no scan holds the lock; 0004 validates.
    op.execute(
        "ALTER TABLE batch ADD CONSTRAINT ck_batch_proving"
        " CHECK (proving BETWEEN 0 AND unsure AND (proving = 0) = (prove_at IS NULL)) NOT VALID"
    )
    op.execute("ALTER TABLE batch DROP CONSTRAINT ck_batch_settled_at")
    op.execute(
        "ALTER TABLE batch ADD CONSTRAINT ck_batch_settled_at"
        " CHECK (settled_at IS NULL OR owed + sending + retrying + proving = 0) NOT VALID"
    )


def downgrade() -> None:
    op.execute("ALTER TABLE batch DROP CONSTRAINT ck_batch_settled_at")
    op.execute(
        "ALTER TABLE batch ADD CONSTRAINT ck_batch_settled_at"
        " CHECK (settled_at IS NULL OR owed + sending + retrying = 0)"
    )
    op.execute("ALTER TABLE batch DROP CONSTRAINT ck_batch_proving")
    op.drop_index(
        "ix_batch_recovered", table_name="batch", postgresql_where=sa.text("recovery_count > 0 AND settled_at IS NULL")
    )
    op.drop_index("ix_batch_prove", table_name="batch", postgresql_where=sa.text("prove_at IS NOT NULL"))
    op.drop_column("batch", "prove_at")
    op.drop_column("batch", "proving")
    op.drop_index("ix_operation_item_open", table_name="operation_item", postgresql_where=sa.text("result IS NULL"))
    op.drop_table("operation_item")
    op.drop_index("ix_recovery_pass_started_at", table_name="recovery_pass")
    op.drop_table("recovery_pass")
    op.drop_index("ix_receipt_provider_ref", table_name="receipt", postgresql_where=sa.text("provider_ref IS NOT NULL"))
    op.drop_index("ix_receipt_waiting", table_name="receipt", postgresql_where=sa.text("applied_at IS NULL"))
    op.drop_index("ix_receipt_delivery", table_name="receipt")
    op.drop_table("receipt")
    op.drop_index(
        "ix_operation_open", table_name="operation", postgresql_where=sa.text("status IN ('scheduled', 'running')")
    )
    op.drop_table("operation")
    op.drop_index("ix_audit_at", table_name="audit")
    op.drop_table("audit")

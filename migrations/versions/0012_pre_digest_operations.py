"""Bulk operations take notifications, too."""

import sqlalchemy as sa
from alembic import op

revision = "0012_pre_digest_operations"
down_revision = "0011_pre_inbox"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "operation_notification",
        sa.Column("operation_id", sa.Uuid(), nullable=False),
        sa.Column("notification_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("why", sa.Text(), nullable=True),
        sa.CheckConstraint("result IN ('done', 'skipped')", name=op.f("ck_operation_notification_result")),
        sa.PrimaryKeyConstraint("operation_id", "notification_id", name=op.f("pk_operation_notification")),
    )
    op.create_index(
        "ix_operation_notification_open",
        "operation_notification",
        ["operation_id", "notification_id"],
        unique=False,
        postgresql_where=sa.text("result IS NULL"),
    )
    op.create_index(
        op.f("ix_operation_notification_notification_id"), "operation_notification", ["notification_id"], unique=False
    )


def downgrade() -> None:
    op.drop_index(op.f("ix_operation_notification_notification_id"), table_name="operation_notification")
    op.drop_index(
        "ix_operation_notification_open",
        table_name="operation_notification",
        postgresql_where=sa.text("result IS NULL"),
    )
    op.drop_table("operation_notification")

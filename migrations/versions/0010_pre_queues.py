"""Paused queues."""

from alembic import op

revision = "0010_pre_queues"
down_revision = "0009_pre_sign_in"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SELECT 1")


def downgrade() -> None:
    pass

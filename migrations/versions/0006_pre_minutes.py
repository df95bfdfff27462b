"""Counts per minute."""

from alembic import op

revision = "0006_pre_minutes"
down_revision = "0005_pre_holds"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SELECT 1")


def downgrade() -> None:
    pass

"""Open failures, in a small table of their own."""

from alembic import op

revision = "0007_pre_failures"
down_revision = "0006_pre_minutes"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SELECT 1")


def downgrade() -> None:
    pass

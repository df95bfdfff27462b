"""Events, findings, digests."""

from alembic import op

revision = "0008_pre_digests"
down_revision = "0007_pre_failures"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SELECT 1")


def downgrade() -> None:
    pass

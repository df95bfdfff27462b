"""Operators' holds in the ledger."""

from alembic import op

revision = "0005_pre_holds"
down_revision = "0004_pre_validate"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SELECT 1")


def downgrade() -> None:
    pass

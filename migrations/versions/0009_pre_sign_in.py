"""One-time sign-in links."""

from alembic import op

revision = "0009_pre_sign_in"
down_revision = "0008_pre_digests"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SELECT 1")


def downgrade() -> None:
    pass

"""Which set-up of a digest channel an answer is about, and whether a thing was over when it was put into its message."""

import sqlalchemy as sa
from alembic import op

revision = "0023_pre_digest_truth"
down_revision = "0022_pre_provider_outages"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "digest_channel", sa.Column("setup_version", sa.Integer(), server_default=sa.text("0"), nullable=False)
    )
    op.add_column("notification", sa.Column("was_over", sa.Boolean(), server_default=sa.text("false"), nullable=False))


def downgrade() -> None:
    op.drop_column("notification", "was_over")
    op.drop_column("digest_channel", "setup_version")

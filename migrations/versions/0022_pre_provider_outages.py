"""A provider's outage as the ledger saw it: since when, and until when, it was called and took nothing."""

import sqlalchemy as sa
from alembic import op

revision = "0022_pre_provider_outages"
down_revision = "0021_pre_active_dedup_keys"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("provider_state", sa.Column("refused_since", sa.DateTime(timezone=True), nullable=True))
    op.add_column("provider_state", sa.Column("refused_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    op.drop_column("provider_state", "refused_at")
    op.drop_column("provider_state", "refused_since")

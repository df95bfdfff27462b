"""Operators' holds on providers: the ledger keeps them, Redis only tells of them."""

import sqlalchemy as sa
from alembic import op

revision = "0005_pre_holds"
down_revision = "0004_pre_validate"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "provider_hold",
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("credential", sa.Text(), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("operator", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("provider", "credential", name=op.f("pk_provider_hold")),
    )


def downgrade() -> None:
    op.drop_table("provider_hold")

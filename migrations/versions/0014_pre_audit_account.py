"""The audit names the account behind an operator's name."""

import sqlalchemy as sa
from alembic import op

revision = "0014_pre_audit_account"
down_revision = "0013_pre_sends_kept"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("audit", sa.Column("account", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("audit", "account")

"""The sandbox's inbox knows which delivery a message is: the tenant's reference is shown beside it."""

import sqlalchemy as sa
from alembic import op

revision = "0011_pre_inbox"
down_revision = "0010_pre_queues"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("sandbox_message", sa.Column("send_id", sa.Uuid(), nullable=True))
    op.add_column("sandbox_message", sa.Column("row_no", sa.Integer(), nullable=True))


def downgrade() -> None:
    op.drop_column("sandbox_message", "row_no")
    op.drop_column("sandbox_message", "send_id")

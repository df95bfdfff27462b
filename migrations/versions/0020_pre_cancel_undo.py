"""A cancelled send can be undone for a while: when it was asked for, and by whom."""

import sqlalchemy as sa
from alembic import op

revision = "0020_pre_cancel_undo"
down_revision = "0019_pre_send_events"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("send", sa.Column("cancel_asked_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("send", sa.Column("cancel_asked_by", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("send", "cancel_asked_by")
    op.drop_column("send", "cancel_asked_at")

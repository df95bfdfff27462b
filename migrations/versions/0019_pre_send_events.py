"""What was recovered of a send, and which workers left it while draining, for the page of the send."""

import sqlalchemy as sa
from alembic import op

revision = "0019_pre_send_events"
down_revision = "0018_pre_paused_by"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "send_event",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("send_id", sa.Uuid(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("batch_no", sa.Integer(), nullable=True),
        sa.Column("deliveries", sa.Integer(), nullable=True),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_send_event")),
    )
    op.create_index("ix_send_event_send_id", "send_event", ["send_id", sa.literal_column("id DESC")], unique=False)


def downgrade() -> None:
    op.drop_index("ix_send_event_send_id", table_name="send_event")
    op.drop_table("send_event")

"""What came of an operation is written down, so that retention may remove the set of its items."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0017_pre_operation_results"
down_revision = "0016_pre_twilio_messages"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("operation", sa.Column("result", postgresql.JSONB(astext_type=sa.Text()), nullable=True))
    op.add_column("operation", sa.Column("emptied_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    op.drop_column("operation", "emptied_at")
    op.drop_column("operation", "result")

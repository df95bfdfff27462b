"""
The pages count the dead letters of digests that nobody discarded by an index of them alone.

Alone in its migration, as 0021 is: while it is built, whoever writes notifications waits for a reading of `notification`.
"""

import sqlalchemy as sa
from alembic import op

revision = "0025_pre_undecided_dead_letters"
down_revision = "0024_pre_discarded_notifications"
branch_labels = None
depends_on = None

_NAME = "ix_notification_undecided"
_WHERE = sa.text("status = 'dead_lettered' AND discarded_at IS NULL")


def upgrade() -> None:
    op.create_index(_NAME, "notification", ["channel_id", "final_at"], unique=False, postgresql_where=_WHERE)


def downgrade() -> None:
    op.drop_index(_NAME, table_name="notification", postgresql_where=_WHERE)

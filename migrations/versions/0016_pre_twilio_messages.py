"""
Whose message an id of Twilio's is: looked up before a message in Twilio's list is taken for an unsure delivery's.

Alone in its migration: while it is built, recording waits for one reading of `attempt`.
"""

import sqlalchemy as sa
from alembic import op

revision = "0016_pre_twilio_messages"
down_revision = "0015_pre_notification_history"
branch_labels = None
depends_on = None

_TWILIO = "provider = 'twilio'"


def upgrade() -> None:
    op.create_index("ix_attempt_twilio", "attempt", ["provider_ref"], unique=False, postgresql_where=sa.text(_TWILIO))


def downgrade() -> None:
    op.drop_index("ix_attempt_twilio", table_name="attempt", postgresql_where=sa.text(_TWILIO))

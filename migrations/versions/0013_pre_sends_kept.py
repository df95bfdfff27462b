"""
Retention finds the sends it still has to empty by an index.

Alone in its migration: while it is built, acceptance waits for one reading of `send`, and nobody for more. Built
CONCURRENTLY it would wait for the other `release` processes, which wait for this one.
"""

import sqlalchemy as sa
from alembic import op

revision = "0013_pre_sends_kept"
down_revision = "0012_pre_digest_operations"
branch_labels = None
depends_on = None

_OPEN = "settled_counts IS NOT NULL AND emptied_at IS NULL"


def upgrade() -> None:
    op.create_index(
        "ix_send_kept",
        "send",
        [sa.literal_column("coalesce(completed_at, cancelled_at)")],
        unique=False,
        postgresql_where=sa.text(_OPEN),
    )


def downgrade() -> None:
    op.drop_index("ix_send_kept", table_name="send", postgresql_where=sa.text(_OPEN))

"""
Retention finds the active findings of a dedup key by an index.

Alone in its migration: while it is built, whoever writes findings waits for a reading of `finding`, and nobody else.
(Built beside writers it would wait for every other process that waits to migrate, and those for it.)
"""

import sqlalchemy as sa
from alembic import op

revision = "0021_pre_active_dedup_keys"
down_revision = "0020_pre_cancel_undo"
branch_labels = None
depends_on = None

_NAME = "ix_finding_active_dedup_key"


def upgrade() -> None:
    op.create_index(_NAME, "finding", ["tenant_id", "dedup_key"], unique=False, postgresql_where=sa.text("active"))


def downgrade() -> None:
    op.drop_index(_NAME, table_name="finding", postgresql_where=sa.text("active"))

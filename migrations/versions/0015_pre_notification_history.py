"""
The history of digests finds what is rare by indexes.

Alone in its migration: while they are built, dispatch waits for a reading of `notification`, and who only reads for
nothing. So the index that another replaces steps aside, and is dropped by itself when that is there: a drop shuts readers
out until its commit. Broken off between the two, the migration runs again and finds what it has built.
"""

import sqlalchemy as sa
from alembic import op

revision = "0015_pre_notification_history"
down_revision = "0014_pre_audit_account"
branch_labels = None
depends_on = None

_REPLACED = "ix_notification_newest_replaced"
_FOUND = "finding_key IS NOT NULL"
#: In an order that no other index has, so that none is taken in its place.
_ORDERED = {
    "ix_notification_newest": ["channel_id"],
    "ix_notification_kind": ["channel_id", "kind"],
    "ix_notification_status": ["channel_id", "status"],
}


def upgrade() -> None:
    if not _is_built():
        op.execute(f"ALTER INDEX ix_notification_newest RENAME TO {_REPLACED}")
        for name, columns in _ORDERED.items():
            op.create_index(name, "notification", [*columns, sa.literal_column("(-id)")], unique=False)
        op.create_index(
            "ix_notification_finding",
            "notification",
            ["channel_id", "finding_key"],
            unique=False,
            postgresql_where=sa.text(_FOUND),
        )
    with op.get_context().autocommit_block():
        op.execute(f"DROP INDEX IF EXISTS {_REPLACED}")


def _is_built() -> bool:
    return op.get_bind().scalar(sa.text("SELECT to_regclass('ix_notification_finding')")) is not None


def downgrade() -> None:
    op.drop_index("ix_notification_finding", table_name="notification", postgresql_where=sa.text(_FOUND))
    for name in _ORDERED:
        op.drop_index(name, table_name="notification")
    op.create_index(
        "ix_notification_newest", "notification", ["channel_id", sa.literal_column("id DESC")], unique=False
    )

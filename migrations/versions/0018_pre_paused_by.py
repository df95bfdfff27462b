"""
Which operator paused a send stands beside the reason, so that its tenant can be told the reason alone.

The column is committed before the rows are gone through: until then nobody could read a send. Broken off between the two,
the migration runs again.
"""

from alembic import op

revision = "0018_pre_paused_by"
down_revision = "0017_pre_operation_results"
branch_labels = None
depends_on = None

#: A reason that begins with a name, as it was written before; the audit tells whose name it is.
_SPLIT = """
    UPDATE send SET paused_by = a.operator, pause_reason = a.reason
    FROM audit a
    WHERE send.status = 'paused' AND send.paused_by IS NULL AND a.target = 'send ' || send.id AND a.action = 'pause send'
      AND send.pause_reason = a.operator || ': ' || a.reason
"""


def upgrade() -> None:
    op.execute("ALTER TABLE send ADD COLUMN IF NOT EXISTS paused_by text")
    with op.get_context().autocommit_block():
        op.execute(_SPLIT)


def downgrade() -> None:
    op.drop_column("send", "paused_by")

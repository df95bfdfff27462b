"""Paused queues; what a pass finds unaccounted in the books."""

from alembic import op

revision = "0010_pre_queues"
down_revision = "0009_pre_sign_in"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        """
        CREATE TABLE queue_pause (
            queue text NOT NULL,
            operator text NOT NULL,
            reason text NOT NULL,
            paused_at timestamptz NOT NULL DEFAULT now(),
            CONSTRAINT pk_queue_pause PRIMARY KEY (queue)
        )
        """
    )
    op.execute("ALTER TABLE recovery_pass ADD COLUMN unaccounted jsonb")


def downgrade() -> None:
    op.execute("ALTER TABLE recovery_pass DROP COLUMN unaccounted")
    op.execute("DROP TABLE queue_pause")

"""A dead letter of a digest can be discarded: it stays one, and warns nobody any more."""

from alembic import op

revision = "0024_pre_discarded_notifications"
down_revision = "0023_pre_digest_truth"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE notification ADD COLUMN IF NOT EXISTS discarded_at timestamptz")


def downgrade() -> None:
    op.drop_column("notification", "discarded_at")

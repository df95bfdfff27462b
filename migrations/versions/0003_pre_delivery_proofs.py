"""When a delivery whose outcome is unsure is looked at next. Locks `delivery` alone, for an instant: nothing is read."""

import sqlalchemy as sa
from alembic import op

revision = "0003_pre_delivery_proofs"
down_revision = "0002_pre_recovery"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("delivery", sa.Column("prove_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("delivery", sa.Column("prove_count", sa.SmallInteger(), server_default=sa.text("0"), nullable=False))
    op.add_column("delivery", sa.Column("credential", sa.Text(), nullable=True))
    # NOT VALID: existing rows meet the rules by their defaults, and no scan holds the lock; 0004 validates.
    op.execute(
        "ALTER TABLE delivery ADD CONSTRAINT ck_delivery_prove_at CHECK (prove_at IS NULL OR status = 'unsure') NOT VALID"
    )
    op.execute("ALTER TABLE delivery DROP CONSTRAINT ck_delivery_settled_at")
    op.execute(
        "ALTER TABLE delivery ADD CONSTRAINT ck_delivery_settled_at CHECK"
        " (prove_at IS NOT NULL OR (status IN ('owed', 'sending', 'retrying')) = (settled_at IS NULL)) NOT VALID"
    )


def downgrade() -> None:
    op.execute("ALTER TABLE delivery DROP CONSTRAINT ck_delivery_settled_at")
    op.execute("UPDATE delivery SET settled_at = now() WHERE status = 'unsure' AND settled_at IS NULL")
    op.execute(
        "ALTER TABLE delivery ADD CONSTRAINT ck_delivery_settled_at"
        " CHECK ((status IN ('owed', 'sending', 'retrying')) = (settled_at IS NULL))"
    )
    op.execute("ALTER TABLE delivery DROP CONSTRAINT ck_delivery_prove_at")
    op.drop_column("delivery", "credential")
    op.drop_column("delivery", "prove_count")
    op.drop_column("delivery", "prove_at")

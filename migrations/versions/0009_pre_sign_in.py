"""Who is signed in to the pages, one-time sign-in links, and in the audit the role and the request."""

import sqlalchemy as sa
from alembic import op

revision = "0009_pre_sign_in"
down_revision = "0008_pre_digests"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("audit", sa.Column("role", sa.Text(), nullable=True))
    op.add_column("audit", sa.Column("request_id", sa.Text(), nullable=True))
    op.create_index("ix_audit_operator_id", "audit", ["operator", "id"])
    op.create_table(
        "sign_in_link",
        sa.Column("token_hash", sa.LargeBinary(), nullable=False),
        sa.Column("operator", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("used_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("token_hash", name=op.f("pk_sign_in_link")),
    )
    op.create_table(
        "operator_session",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("operator", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=True),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("tokens", sa.LargeBinary(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("checked_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("check_begun_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("role IN ('admin', 'read')", name=op.f("ck_operator_session_role")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_operator_session")),
    )
    op.create_index("ix_operator_session_expires_at", "operator_session", ["expires_at"])


def downgrade() -> None:
    op.drop_table("operator_session")
    op.drop_table("sign_in_link")
    op.drop_index("ix_audit_operator_id", "audit")
    op.drop_column("audit", "request_id")
    op.drop_column("audit", "role")

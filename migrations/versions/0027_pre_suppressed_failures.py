"""
A suppressed address has the keyed hash that a failure has: a preview of a requeue compares the two, and reads no address.

Each step is a transaction of its own and can be done twice. While the index is built, whoever suppresses an address waits
for a reading of `suppression`.
"""

from alembic import op

revision = "0027_pre_suppressed_failures"
down_revision = "0026_pre_reported_failures"
branch_labels = None
depends_on = None

_STEPS = (
    "ALTER TABLE suppression ADD COLUMN IF NOT EXISTS address_hash bytea",
    """
    CREATE OR REPLACE FUNCTION hash_address() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        NEW.address_hash := address_hash(NEW.channel, NEW.address);
        RETURN NEW;
    END
    $$
    """,
    """
    CREATE OR REPLACE TRIGGER hash_address BEFORE INSERT OR UPDATE ON suppression FOR EACH ROW
        EXECUTE FUNCTION hash_address()
    """,
    "UPDATE suppression SET address_hash = address_hash(channel, address) WHERE address_hash IS NULL",
    "ALTER TABLE suppression ALTER COLUMN address_hash SET NOT NULL",
    "CREATE INDEX IF NOT EXISTS ix_suppression_address_hash ON suppression (tenant_id, address_hash)",
)


def upgrade() -> None:
    with op.get_context().autocommit_block():
        for step in _STEPS:
            op.execute(step)


def downgrade() -> None:
    op.execute("DROP TRIGGER hash_address ON suppression")
    op.execute("DROP FUNCTION hash_address()")
    op.drop_index("ix_suppression_address_hash", table_name="suppression")
    op.drop_column("suppression", "address_hash")

"""
A suppressed address has the keyed hash that a failure has: a preview of a requeue compares the two, and reads no address.

Each step is a transaction of its own and can be done twice. What is suppressed already gets its hash a page at a time:
whoever suppresses or takes off one of these addresses waits for a page. While the index is built, whoever suppresses an
address waits for a reading of `suppression`.
"""

from alembic import op

revision = "0027_pre_suppressed_failures"
down_revision = "0026_pre_reported_failures"
branch_labels = None
depends_on = None

#: The trigger makes the hash. The rows of a page are found by key and changed by place: whatever the planner believes.
_FILL = """
DO $$
DECLARE
    after_tenant bigint := 0;
    after_channel text := '';
    after_address text := '';
    page record;
BEGIN
    LOOP
        SELECT array_agg(p.ctid) AS places,
               array_agg(p.tenant_id ORDER BY p.tenant_id DESC, p.channel DESC, p.address DESC) AS tenants,
               array_agg(p.channel ORDER BY p.tenant_id DESC, p.channel DESC, p.address DESC) AS channels,
               array_agg(p.address ORDER BY p.tenant_id DESC, p.channel DESC, p.address DESC) AS addresses
        INTO page
        FROM (
            SELECT ctid, tenant_id, channel, address FROM suppression
            WHERE (tenant_id, channel, address) > (after_tenant, after_channel, after_address)
            ORDER BY tenant_id, channel, address LIMIT 1000
        ) AS p;
        EXIT WHEN page.places IS NULL;
        UPDATE suppression SET reason = reason WHERE ctid = ANY (page.places) AND address_hash IS NULL;
        COMMIT;
        after_tenant := page.tenants[1];
        after_channel := page.channels[1];
        after_address := page.addresses[1];
    END LOOP;
END
$$
"""
_STEPS = (
    "ALTER TABLE suppression ADD COLUMN IF NOT EXISTS address_hash bytea",
    """
    CREATE OR REPLACE FUNCTION hash_address() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
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
    "SET statement_timeout = 0",  # of all pages together
    _FILL,
    "SET statement_timeout = '300s'",
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

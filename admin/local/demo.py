"""A tenant, a key and a way in to try things with; the key is kept so that every start shows the same."""

from pathlib import Path

from admin.local.place import write_secret
from admin.monitoring.sign_in.link import new_link
from shared.domain.states import Mode
from shared.ledger.db import Ledger
from shared.ledger.tenants import authenticate, create_key, create_tenant, find_tenant

TENANT = "demo"
#: who the link of `make up` signs in, in the audit
OPERATOR = "local"
#: the numbering plan of the examples: +1 604 555 01xx, reserved for fiction
REGION = "CA"


def sign_in_link(database_url: str, base_url: str, secret_key: str) -> str:
    """Give a link that signs one browser in to the pages, as OPERATOR."""
    ledger = Ledger(database_url, size=1, name="tidings up")
    ledger.open()
    try:
        with ledger.transaction() as connection:
            return new_link(connection, base_url, secret_key, operator=OPERATOR)
    finally:
        ledger.close()


def ensure_key(database_url: str, key_file: Path) -> str:
    """Give a live key of the demo tenant: the kept one while it is valid, else a new one."""
    ledger = Ledger(database_url, size=1, name="tidings up")
    ledger.open()
    try:
        with ledger.transaction() as connection:
            kept = key_file.read_text().strip() if key_file.exists() else ""
            if kept and authenticate(connection, kept):
                return kept
            tenant = find_tenant(connection, TENANT)
            # It has no sender of its own, which would stand over EMAIL_FROM.
            tenant_id = tenant.id if tenant else create_tenant(connection, name=TENANT, default_region=REGION)
            _, secret = create_key(connection, tenant_id=tenant_id, mode=Mode.LIVE, name="make up")
    finally:
        ledger.close()
    write_secret(key_file, f"{secret}\n")
    return secret

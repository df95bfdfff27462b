"""`tidings tenant …` and `tidings key …`: who may hand in sends. They write to the ledger itself."""

import click

from admin.cli.fault import CommandError
from admin.cli.screen import cell, say
from admin.cli.stores import ledger_transaction
from admin.cli.table import as_table


@click.group()
def tenant() -> None:
    """Applications that hand in sends."""


@tenant.command("create")
@click.argument("name")
@click.option("--region", metavar="CA", help="Country of phone numbers written without +, two letters.")
@click.option("--email-from", metavar="ADDRESS", help="Sender of its e-mails that name none.")
@click.option("--sms-from", metavar="NUMBER", help="Sender of its text messages that name none.")
def create_tenant(name: str, region: str | None, email_from: str | None, sms_from: str | None) -> None:
    """Create a tenant; make it a key next."""
    from shared.ledger import tenants

    with ledger_transaction() as connection:
        try:
            tenant_id = tenants.create_tenant(
                connection,
                name=name,
                default_region=region.upper() if region else None,
                email_from=email_from,
                sms_from=sms_from,
            )
        except tenants.TenantError as error:
            raise CommandError(str(error)) from None
    say(f"Created tenant {tenant_id}: {cell(name)}")


@tenant.command("list")
def list_tenants() -> None:
    """List all tenants, oldest first."""
    from shared.ledger import tenants

    with ledger_transaction() as connection:
        found = tenants.list_tenants(connection)
    head = ("id", "name", "region", "e-mail from", "SMS from", "created")
    rows = [(t.id, t.name, t.default_region, t.email_from, t.sms_from, f"{t.created_at:%Y-%m-%d}") for t in found]
    say(as_table(head, rows))


@click.group()
def key() -> None:
    """API keys of a tenant."""


@key.command("create")
@click.argument("tenant_name", metavar="TENANT")
@click.option("--test", "is_test", is_flag=True, help="What it sends goes to the sandbox inbox and nowhere else.")
@click.option("--name", default="command line", show_default=True, help="What the key is for.")
def create_key(tenant_name: str, is_test: bool, name: str) -> None:  # noqa: FBT001  # click passes by keyword
    """
    Make a key. It is shown now and never again: only its hash is kept.

    The key alone goes to standard output, so that it can be piped into a secret store.
    """
    from shared.domain.states import Mode
    from shared.ledger import tenants

    with ledger_transaction() as connection:
        holder = tenants.find_tenant(connection, tenant_name)
        if holder is None:
            raise CommandError(f"there is no tenant named {tenant_name}; see `tidings tenant list`")
        mode = Mode.TEST if is_test else Mode.LIVE
        try:
            key_id, secret = tenants.create_key(connection, tenant_id=holder.id, mode=mode, name=name)
        except tenants.TenantError as error:
            raise CommandError(str(error)) from None
    say(f"Created {mode.value} key {key_id} of {cell(tenant_name)}. Keep it now: it cannot be shown again.", err=True)
    say(secret)


@key.command("list")
@click.argument("tenant_name", metavar="TENANT")
def list_keys(tenant_name: str) -> None:
    """List a tenant's keys by their beginnings, revoked ones included."""
    from shared.ledger import tenants

    with ledger_transaction() as connection:
        holder = tenants.find_tenant(connection, tenant_name)
        if holder is None:
            raise CommandError(f"there is no tenant named {tenant_name}; see `tidings tenant list`")
        found = tenants.list_keys(connection, holder.id)
    rows = [
        (k.id, k.name, k.mode.value, f"{k.prefix}…", f"{k.created_at:%Y-%m-%d}", *(
            None if moment is None else f"{moment:%Y-%m-%d %H:%M} UTC" for moment in (k.last_used_at, k.revoked_at)
        ))
        for k in found
    ]  # fmt: skip
    say(as_table(("id", "name", "mode", "key", "created", "last used", "revoked"), rows))


@key.command("revoke")
@click.argument("key_id", metavar="ID", type=click.IntRange(min=1))
def revoke_key(key_id: int) -> None:
    """Revoke a key by its id; the next request with it is refused. What was accepted stays owed."""
    from shared.ledger import tenants

    with ledger_transaction() as connection:
        if not tenants.revoke_key(connection, key_id):
            raise CommandError(f"there is no key {key_id}, or it was revoked before; see `tidings key list`")
    say(f"Revoked key {key_id}")

"""
`tidings suppression …`: addresses that a tenant must not write to.

Addresses are read from a file or standard input, one per line: as arguments they would stand in the list of processes
and in the shell's history.
"""

from collections.abc import Iterable
from typing import IO, TYPE_CHECKING

import click

from admin.cli.fault import CommandError
from admin.cli.screen import cell, say
from admin.cli.stores import ledger_transaction

if TYPE_CHECKING:
    from shared.domain.states import Channel
    from shared.ledger.db import Connection
    from shared.ledger.tenants import Tenant

#: Lines that are no address and are told one by one.
_SHOWN_FAULTS = 20

_sms = click.option("--sms", is_flag=True, help="They are telephone numbers; else e-mail addresses.")
_file = click.argument("file", type=click.File("r", encoding="utf-8-sig"), default="-")


@click.group()
def suppression() -> None:
    """Addresses a tenant must not write to."""


@suppression.command("add")
@click.argument("tenant_name", metavar="TENANT")
@_file
@_sms
@click.option("--reason", default="added by hand", show_default=True, help="Kept with the address.")
def add(tenant_name: str, file: IO[str], sms: bool, reason: str) -> None:  # noqa: FBT001  # click passes by keyword
    """Put the addresses of FILE, one per line, on the list. From now on none of them is called."""
    from shared.ledger import deliveries

    with ledger_transaction() as connection:
        holder = _tenant(connection, tenant_name)
        channel, addresses = _read(file, holder, sms=sms)
        deliveries.suppress(connection, tenant_id=holder.id, channel=channel, addresses=addresses, reason=reason)
    say(f"{len(addresses):,} on the list of {cell(tenant_name)}")


@suppression.command("remove")
@click.argument("tenant_name", metavar="TENANT")
@_file
@_sms
def remove(tenant_name: str, file: IO[str], sms: bool) -> None:  # noqa: FBT001  # as above
    """Take the addresses of FILE off the list. What was not sent because of it stays so."""
    from shared.ledger import suppressions

    with ledger_transaction() as connection:
        holder = _tenant(connection, tenant_name)
        channel, addresses = _read(file, holder, sms=sms)
        count = suppressions.remove(connection, tenant_id=holder.id, channel=channel, addresses=addresses)
    say(f"{count:,} taken off the list of {cell(tenant_name)}; {len(addresses) - count:,} were not on it")


@suppression.command("list")
@click.argument("tenant_name", metavar="TENANT")
@click.option("--full", is_flag=True, help="Show addresses in full.")
def list_suppressions(tenant_name: str, full: bool) -> None:  # noqa: FBT001  # as above
    """List the addresses, masked, with tabs between the cells."""
    from shared.domain.masking import mask_address
    from shared.ledger import suppressions

    with ledger_transaction() as connection:
        for one in suppressions.every(connection, _tenant(connection, tenant_name).id):
            address = one.address if full else mask_address(one.channel, one.address)
            say("\t".join(map(cell, [one.channel, address, f"{one.created_at:%Y-%m-%d}", one.reason])))


def _tenant(connection: "Connection", name: str) -> "Tenant":
    from shared.ledger import tenants

    found = tenants.find_tenant(connection, name)
    if found is None:
        raise CommandError(f"there is no tenant named {name}; see `tidings tenant list`")
    return found


def _read(lines: Iterable[str], holder: "Tenant", *, sms: bool) -> "tuple[Channel, list[str]]":
    """The addresses in the form they are stored in; nothing is done unless every line is one."""
    from shared.domain.address import AddressError, parse_email, parse_phone
    from shared.domain.states import Channel

    addresses, faults = [], []
    try:
        for number, line in enumerate(lines, start=1):
            if not (text := line.strip()):
                continue
            try:
                addresses.append(parse_phone(text, holder.default_region) if sms else parse_email(text).ascii)
            except AddressError as error:
                faults.append(f"line {number} {error}")
    except UnicodeDecodeError:
        raise CommandError("the file is not UTF-8 text") from None
    for fault in faults[:_SHOWN_FAULTS]:
        say(f"  {cell(fault)}", err=True)
    if faults:
        raise CommandError(f"nothing was changed: lines that are no address: {len(faults):,}")
    return Channel.SMS if sms else Channel.EMAIL, addresses

"""`tidings digest channel …`: where events and findings are told."""

from typing import TYPE_CHECKING, Any

import click

from admin.cli.digest_given import asked_of, own_settings, read_given, refusals, what_it_hears
from admin.cli.digest_runs import found_channel, run_by_worker
from admin.cli.fault import CommandError
from admin.cli.moments import when
from admin.cli.operator import as_operator
from admin.cli.screen import cell, say
from admin.cli.stores import ledger_transaction
from admin.cli.table import as_table

if TYPE_CHECKING:
    from shared.ledger.digest_channels import DigestChannel

_TYPES = ("webhook", "ntfy", "gotify", "slack", "teams", "email")
#: What a channel may lose again, as options of `edit --unset`, and in words.
_REMOVABLE = {"auth-header": "an auth header", "token": "a token", "from": "a sender of its own"}
_name = click.argument("name", metavar="NAME")


@click.group()
def channel() -> None:
    """Where events and findings are told."""


@channel.command("add")
@_name
@click.option("--tenant", "tenant_name", required=True, metavar="TENANT", help="Whose events and findings it tells.")
@click.option("--type", "type_name", required=True, type=click.Choice(_TYPES))
@click.option("--tell-existing", is_flag=True, help="Tell what is there already, too.")
@read_given
@what_it_hears
@own_settings
@as_operator
def add(name: str, tenant_name: str, type_name: str, tell_existing: bool, **given: Any) -> None:  # noqa: FBT001  # click passes by keyword
    """
    Set a channel up. Try it with `tidings digest channel test NAME`.

    Addresses of endpoints, tokens and secrets are best given as environment variables or, as a single -, typed in.
    A webhook without a signing secret gets one, which is shown this once.
    """
    from shared.domain.digests import ChannelType
    from shared.domain.webhook_signature import new_secret
    from shared.ledger import digest_setup, tenants

    made = new_secret() if type_name == "webhook" and not given["signing_secret"] else None
    given["signing_secret"] = given["signing_secret"] or made
    with refusals(), ledger_transaction() as connection:
        setup, wishes = asked_of(type_name, given, name=name)
        tenant = tenants.find_tenant(connection, tenant_name)
        if tenant is None:
            raise CommandError(f"there is no tenant named {tenant_name}; see `tidings tenant list`")
        known = digest_setup.add(
            connection,
            tenant_id=tenant.id,
            name=name,
            type_=ChannelType(type_name),
            setup=setup,
            wishes=wishes,
            tell_existing=tell_existing,
            operator=given["operator"],
        )
    say(f"Channel {name} is set up.{'' if tell_existing else _known_words(known, even_none=True)}", err=True)
    if made:
        say("Its signing secret, for the receiver; it cannot be shown again:", err=True)
        say(made)


@channel.command("list")
def list_channels() -> None:
    """List channels with what waits for each."""
    from shared.ledger import digest_channels

    with ledger_transaction() as connection:
        found = digest_channels.every(connection)
    head = ("name", "tenant", "type", "to", "state", "waiting", "retrying", "dead-lettered", "next due", "last sent")
    rows = [
        (one.name, one.tenant, one.type, one.target, _state(one), one.waiting, one.retrying, one.dead_lettered,
         when(one.next_at), when(one.last_sent_at))
        for one in found
    ]  # fmt: skip
    say(as_table(head, rows))


@channel.command("show")
@_name
def show(name: str) -> None:
    """Show a channel, without its secrets."""
    with ledger_transaction() as connection:
        found = found_channel(connection, name)
    lines = {
        "tenant": found.tenant,
        "type": found.type,
        "to": found.target,
        "from": found.config.get("from"),
        "state": _state(found),
        "kinds": ", ".join(found.kinds) if found.kinds else "all",
        "severity from": found.min_severity,
        "first backoff": _own(found.retry_base_delay_ms, "ms"),
        "attempts": _own(found.max_delivery_attempts),
        "kept": _own(found.retention_days, "days"),
        "waiting": f"{found.waiting:,}, {found.retrying:,} of them in backoff",
        "dead-lettered": f"{found.dead_lettered:,}",
        "next due": when(found.next_at),
        "last sent": when(found.last_sent_at),
        "created": when(found.created_at),
    }
    say(f"Channel {cell(name)}")
    for word, value in lines.items():
        if value is not None:
            say(f"  {word:<14} {cell(value)}")


@channel.command("edit")
@_name
@read_given
@what_it_hears
@own_settings
@click.option("--all-kinds", is_flag=True, help="Hear of every kind again.")
@click.option("--tell-existing", is_flag=True, help="Tell the findings, too, that are so and new to the filter.")
@click.option(
    "--unset", multiple=True,
    type=click.Choice(["retry-base-delay-ms", "max-attempts", "retention-days", *_REMOVABLE]),
    help="Follow the installation's setting again; without its auth header or token it is called without one from then"
    " on, without its sender the tenant's is taken.",
)  # fmt: skip
@as_operator
def edit(name: str, all_kinds: bool, unset: tuple[str, ...], tell_existing: bool, **given: Any) -> None:  # noqa: FBT001  # as above
    """
    Change a channel: what is not named stays.

    What came before is told by the filter as it was; findings that a wider one lets in count as known. A variable is
    taken only where its option is given as -.
    """
    from shared.ledger import digest_setup

    with refusals(), ledger_transaction() as connection:
        found = found_channel(connection, name)
        kept = {
            "kinds": () if all_kinds else given["kinds"] or tuple(found.kinds or ()),
            "min_severity": given["min_severity"] or found.min_severity,
            "retry_base_delay_ms": given["retry_base_delay_ms"] or found.retry_base_delay_ms,
            "max_attempts": given["max_attempts"] or found.max_delivery_attempts,
            "retention_days": given["retention_days"] or found.retention_days,
        }
        kept |= {option.replace("-", "_"): None for option in unset if option not in _REMOVABLE}
        lost = {option.replace("-", "_") for option in unset if option in _REMOVABLE}
        setup, wishes = asked_of(found.type, {**given, **kept}, partial=True, unset=lost)
        known = digest_setup.change(
            connection,
            found,
            setup=setup,
            wishes=wishes,
            operator=given["operator"],
            tell_existing=tell_existing,
        )
    lost_words = " and ".join(map(_words_of, setup.removed))
    without = f" From now on it goes without {lost_words}." if lost_words else ""
    say(f"Changed {name}.{without}{_known_words(known)}", err=True)


@channel.command("enable")
@_name
@as_operator
def enable(name: str, operator: str) -> None:
    """Switch a channel on: what was found meanwhile is told with the next dispatch."""
    _switch(name, on=True, operator=operator)


@channel.command("disable")
@_name
@as_operator
def disable(name: str, operator: str) -> None:
    """Switch a channel off: nothing is told on it until it is enabled."""
    _switch(name, on=False, operator=operator)


@channel.command("remove")
@_name
@click.option("--reason", metavar="TEXT", help="Why; kept in the audit.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@as_operator
def remove(name: str, reason: str | None, yes: bool, operator: str) -> None:  # noqa: FBT001  # as above
    """Remove a channel with its history. What waits for it is not told."""
    from shared.ledger import digest_channels, digest_setup

    with ledger_transaction() as connection:
        found = found_channel(connection, name)
        lost = digest_channels.losses(connection, found.id)
    say(
        f"{cell(name)} has a history of {lost.notifications:,} notifications and {lost.messages:,} messages;"
        f" {lost.waiting:,} wait to be told, {lost.dead_lettered:,} are dead letters.",
        err=True,
    )
    if not yes and not click.confirm(f"Remove {name} with all of it?"):
        raise CommandError("nothing was done")
    with ledger_transaction() as connection:
        if not digest_setup.remove(connection, found, operator=operator, reason=reason):
            raise CommandError(f"there is no digest channel named {name} any more: somebody else removed it")
    say(f"Removed {name}.", err=True)


@channel.command("test")
@_name
@click.option("--wait", "wait_s", type=click.IntRange(1, 600), default=60, show_default=True, help="Seconds.")
@as_operator
def test_channel(name: str, wait_s: int, operator: str) -> None:
    """Have a worker send a made-up event, and show exactly what the endpoint answered."""
    result = run_by_worker(name, operator=operator, wait_s=wait_s)
    tries = f" ({result['tries']} tries)" if result.get("tries", 1) > 1 else ""
    say(f"{cell(name)} answered{tries}: {cell(result['answer'])}")
    if not result["accepted"]:
        raise CommandError(
            f"that is no success ({result.get('means', 'busy')}): {result.get('why') or result['answer']}"
        )


def _switch(name: str, *, on: bool, operator: str) -> None:
    from shared.ledger import digest_setup

    with ledger_transaction() as connection:
        changed = digest_setup.switch(connection, found_channel(connection, name), on=on, operator=operator)
    word = "enabled" if on else "disabled"
    say(f"{name} is {word}." if changed else f"{name} was {word} already.", err=True)


def _state(found: "DigestChannel") -> str:
    if not found.enabled:
        return "disabled"
    if found.not_configured:
        return f"not set up right: {found.not_configured}"
    if found.waits:
        return "told us to wait"
    return "backing off" if found.backs_off else "ready"


def _words_of(removed: str) -> str:
    return _REMOVABLE[removed.replace("_", "-")]


def _known_words(known: int, *, even_none: bool = False) -> str:
    return f" {known:,} that are there already count as known and are not told." if known or even_none else ""


def _own(value: int | None, unit: str = "") -> str:
    return "as the installation" if value is None else f"{value:,} {unit}".strip()

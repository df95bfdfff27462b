"""`tidings provider …`: what each provider's circuit says, and an operator's hold on it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from admin.cli.fault import CommandError
from admin.cli.moments import when
from admin.cli.operator import as_operator
from admin.cli.screen import say
from admin.cli.stores import ledger_transaction, read_settings
from admin.cli.table import as_table

if TYPE_CHECKING:
    from shared.coordination.circuit import Circuit
    from shared.coordination.circuit_snapshot import CircuitSnapshot
    from shared.ledger.providers import ProviderHold, ProviderState
    from shared.settings import Settings

#: Seconds that Redis may take for a person.
_PATIENCE_S = 3.0
_name = click.argument("name", metavar="NAME")


@click.group()
def provider() -> None:
    """Providers: their circuits, and holding one by hand."""


@provider.command("list")
def list_providers() -> None:
    """List every provider that is configured or was used, with its circuit and its hold."""
    settings = read_settings(or_local=True)
    rows = []
    with _circuits(settings) as circuit_of:
        for (name, credential), (state, hold) in _known(settings).items():
            seen = circuit_of(name, credential).snapshot()
            took = when(state.last_accepted_at) if state else None
            word = "held" if hold else "isolated" if seen.isolation else seen.state
            since = hold.since if hold else seen.isolation.since if seen.isolation else seen.opened_at
            rows.append((f"{name}:{credential}", word, when(since), took, _why(seen, state, hold)))
    say(as_table(("provider", "circuit", "since", "last took a message", "why"), rows))


@provider.command("hold")
@_name
@click.option("--reason", required=True, metavar="TEXT", help="Why; shown to everybody who looks, kept in the audit.")
@as_operator
def hold(name: str, reason: str, operator: str) -> None:
    """Make no calls to a provider until it is released; what is owed waits, and fails nothing."""
    _change("hold", name, reason=reason, operator=operator)


@provider.command("release")
@_name
@as_operator
def release_hold(name: str, operator: str) -> None:
    """End a hold: what waits goes at once, unless the circuit is open as well."""
    _change("release", name, reason=None, operator=operator)


def _change(action: str, name: str, *, reason: str | None, operator: str) -> None:
    from shared.coordination.redis import RedisLink
    from shared.recovery.holds import Holds

    settings = read_settings(or_local=True)
    accounts = [account for account in _known(settings) if name in (account[0], ":".join(account))]
    if not accounts:
        raise CommandError(f"no provider {name} is configured or was used; see `tidings provider list`")
    link = RedisLink(settings.redis_url.get_secret_value(), timeout_s=_PATIENCE_S)
    holds = Holds(ledger_transaction, link, settings)
    try:
        for account in accounts:
            if action == "hold":
                change = holds.hold(*account, operator=operator, reason=reason or "")
            else:
                change = holds.release(*account, operator=operator)
            later = "" if change.told else "; Redis does not answer: its circuit shows it once it does"
            say(f"{':'.join(account)}: {change.result}{later}")
    finally:
        link.close()


def _known(settings: "Settings") -> "dict[tuple[str, str], tuple[ProviderState | None, ProviderHold | None]]":
    """Accounts that are configured, and those that the ledger has seen or holds."""
    from shared.accounts import accounts_in_use
    from shared.ledger import providers

    with ledger_transaction() as connection:
        states = {(state.provider, state.credential): state for state in providers.states(connection)}
        holds = {(hold.provider, hold.credential): hold for hold in providers.holds(connection)}
    accounts = dict.fromkeys([*accounts_in_use(settings), *states, *holds])
    return {account: (states.get(account), holds.get(account)) for account in accounts}


@contextmanager
def _circuits(settings: "Settings") -> "Iterator[Callable[[str, str], Circuit]]":
    from shared.coordination.redis import RedisLink, RedisUnavailable
    from shared.recovery.waits import circuit_of

    link = RedisLink(settings.redis_url.get_secret_value(), timeout_s=_PATIENCE_S)
    try:
        yield lambda name, credential: circuit_of(link, settings, name, credential)
    except RedisUnavailable:
        raise CommandError("Redis (REDIS_URL) does not answer; the circuits are kept there") from None
    finally:
        link.close()


def _why(seen: "CircuitSnapshot", state: "ProviderState | None", hold: "ProviderHold | None") -> str | None:
    if hold:
        return f"{hold.operator}: {hold.reason}"
    if seen.isolation:
        return seen.isolation.reason
    return state.configuration_error if state else None

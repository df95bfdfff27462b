"""`tidings provider …`: what each provider's circuit says, and an operator's hold on it."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

import click

from admin.cli.fault import CommandError
from admin.cli.operator import as_operator
from admin.cli.screen import say
from admin.cli.stores import ledger_transaction, read_settings
from admin.cli.table import as_table

if TYPE_CHECKING:
    from shared.coordination.circuit import Circuit
    from shared.coordination.circuit_snapshot import CircuitSnapshot
    from shared.ledger.providers import ProviderState
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
    known = _known(settings)
    rows = []
    with _circuits(settings) as circuit_of:
        for (name, credential), state in known.items():
            seen = circuit_of(name, credential).snapshot()
            took = _when(state.last_accepted_at) if state else None
            rows.append((f"{name}:{credential}", _word(seen), _since(seen), took, _why(seen, state)))
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
    from shared.ledger import audit

    settings = read_settings(or_local=True)
    accounts = [account for account in _known(settings) if name in (account[0], ":".join(account))]
    if not accounts:
        raise CommandError(f"no provider {name} is configured or was used; see `tidings provider list`")
    with _circuits(settings) as circuit_of, ledger_transaction() as connection:
        for account in accounts:
            circuit = circuit_of(*account)
            if action == "hold":
                changed = circuit.hold(by=operator, reason=reason or "")
                said = "held" if changed else "held already; the reason is now yours"
            else:
                changed = circuit.release(by=operator)
                said = "released" if changed else "was not held"
            target = f"provider {':'.join(account)}"
            audit.record(connection, operator=operator, action=action, target=target, reason=reason, result=said)
            say(f"{':'.join(account)}: {said}")


def _known(settings: "Settings") -> "dict[tuple[str, str], ProviderState | None]":
    """Accounts that are configured, and those the ledger has seen."""
    from shared.accounts import credential_of, provider_name
    from shared.domain.states import Channel, Mode
    from shared.ledger import providers

    names = {provider_name(settings, channel, mode) for channel in Channel for mode in Mode}
    found: dict[tuple[str, str], ProviderState | None] = {
        (name, credential_of(settings, name)): None for name in sorted(names)
    }
    with ledger_transaction() as connection:
        for state in providers.states(connection):
            found[state.provider, state.credential] = state
    return found


class _CircuitOf:
    def __init__(self, settings: "Settings") -> None:
        from shared.coordination.redis import RedisLink

        self._settings = settings
        self.link = RedisLink(settings.redis_url.get_secret_value(), timeout_s=_PATIENCE_S)

    def __call__(self, name: str, credential: str) -> "Circuit":
        from shared.coordination.circuit import Circuit
        from shared.recovery.waits import circuit_policy

        return Circuit(
            self.link,
            provider=name,
            credential=credential,
            policy=circuit_policy(self._settings),
            namespace=self._settings.redis_namespace,
        )


@contextmanager
def _circuits(settings: "Settings") -> Iterator[_CircuitOf]:
    from shared.coordination.redis import RedisUnavailable

    circuits = _CircuitOf(settings)
    try:
        yield circuits
    except RedisUnavailable:
        raise CommandError("Redis (REDIS_URL) does not answer; the circuits are kept there") from None
    finally:
        circuits.link.close()


def _word(seen: "CircuitSnapshot") -> str:
    if seen.hold:
        return "held"
    if seen.isolation:
        return "isolated"
    return seen.state


def _since(seen: "CircuitSnapshot") -> str | None:
    if seen.hold:
        return _when(seen.hold.since)
    return _when(seen.isolation.since if seen.isolation else seen.opened_at)


def _why(seen: "CircuitSnapshot", state: "ProviderState | None") -> str | None:
    if seen.hold:
        return f"{seen.hold.by}: {seen.hold.reason}"
    if seen.isolation:
        return seen.isolation.reason
    return state.configuration_error if state else None


def _when(moment: datetime | None) -> str | None:
    return None if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} UTC"

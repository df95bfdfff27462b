"""
Operators' holds on providers. The ledger keeps them and every claim asks it; Redis is told, so that nobody tries.

So a hold outlives a Redis that is emptied, and holds while Redis is away. What Redis says may be late by one tick of
the due work (`mirror`), in either direction.
"""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import datetime

from shared.accounts import accounts_in_use
from shared.coordination.circuit import Circuit
from shared.coordination.redis import RedisLink, RedisUnavailable
from shared.ledger import audit, providers
from shared.ledger.db import Connection
from shared.ledger.providers import ProviderHold
from shared.recovery.waits import circuit_of
from shared.settings import Settings

_log = logging.getLogger(__name__)

Transaction = Callable[[], AbstractContextManager[Connection]]


@dataclass(frozen=True, slots=True)
class Change:
    """What a deed came to. `told`: Redis knows of it already; else it is told with the next tick of the due work."""

    changed: bool
    result: str
    told: bool


@dataclass(frozen=True, slots=True)
class Holds:
    """Holding and releasing for the command and the pages; `transaction` lends a connection and commits at its end."""

    transaction: Transaction
    link: RedisLink
    settings: Settings

    def hold(self, provider: str, credential: str, *, operator: str, reason: str) -> Change:
        """
        Make no calls to a provider and credential until they are released. Audited.

        Who holds what is held already gives it a new name and reason. Raises what psycopg raises.
        """
        with self.transaction() as connection:
            kept, new = providers.hold(
                connection, provider=provider, credential=credential, operator=operator, reason=reason
            )
            result = "held" if new else "held already; the reason is now yours"
            _audit(connection, "hold", kept.provider, kept.credential, operator=operator, reason=reason, result=result)
        told = False
        with suppress(RedisUnavailable):
            tell(circuit_of(self.link, self.settings, provider, credential), kept)
            told = True
        return Change(new, result, told)

    def release(self, provider: str, credential: str, *, operator: str, reason: str | None = None) -> Change:
        """End a hold; an open circuit or an isolation stays. Audited. Raises what psycopg raises."""
        with self.transaction() as connection:
            was = providers.release(connection, provider=provider, credential=credential)
            result = "released" if was else "was not held"
            _audit(connection, "release", provider, credential, operator=operator, reason=reason, result=result)
        told = False
        with suppress(RedisUnavailable):
            circuit_of(self.link, self.settings, provider, credential).release()
            told = True
        return Change(was, result, told)

    def mirror(self) -> int:
        """
        Make Redis say of holds what the ledger says; how many were put right. Raises RedisUnavailable.

        Redis is asked first: a hold that it tells of and the ledger does not know has been released since, or was made
        by a release of Tidings that kept holds in Redis alone, and then has no id: the ledger takes that over.
        """
        with self.transaction() as connection:
            accounts = {(hold.provider, hold.credential) for hold in providers.holds(connection)}
        accounts.update(accounts_in_use(self.settings))
        said = {account: circuit_of(self.link, self.settings, *account) for account in sorted(accounts)}
        shown = {account: circuit.snapshot().hold for account, circuit in said.items()}
        with self.transaction() as connection:
            kept = {(hold.provider, hold.credential): hold for hold in providers.holds(connection)}
        changed = 0
        for account, circuit in said.items():
            hold, told = kept.get(account), shown[account]
            if hold is not None and (told is None or told.id != str(hold.id)):
                tell(circuit, hold)
            elif hold is None and told is not None and told.id:
                circuit.release(hold_id=told.id)
            elif hold is None and told is not None:
                tell(circuit, self._take_over(*account, by=told.by, reason=told.reason, since=told.since))
            else:
                continue
            changed += 1
            _log.warning("hold_put_right", extra={"provider": ":".join(account), "held": hold is not None})
        return changed

    def _take_over(self, provider: str, credential: str, *, by: str, reason: str, since: datetime) -> ProviderHold:
        with self.transaction() as connection:
            kept, _ = providers.hold(
                connection, provider=provider, credential=credential, operator=by, reason=reason, since=since
            )
            _audit(
                connection, "hold", provider, credential, operator=by, reason=reason, result="kept in the ledger now"
            )
        return kept


def tell(circuit: Circuit, hold: ProviderHold) -> None:
    """Let Redis know of a hold that the ledger keeps. Raises RedisUnavailable."""
    circuit.hold(by=hold.operator, reason=hold.reason, hold_id=str(hold.id), since=hold.since)


def _audit(
    connection: Connection,
    action: str,
    provider: str,
    credential: str,
    *,
    operator: str,
    reason: str | None,
    result: str,
) -> None:
    target = audit.provider_target(provider, credential)
    audit.record(connection, operator=operator, action=action, target=target, reason=reason, result=result)

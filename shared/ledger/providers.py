"""What the fleet knows of a provider: when it last took anything, and whether its set-up was refused."""

from dataclasses import dataclass
from datetime import datetime

from shared.ledger.db import Connection
from shared.ledger.queries import statement

_LAST_ACCEPTED = statement("provider_last_accepted")
_NOTE_ACCEPTED = statement("note_provider_accepted")
_NOTE_MISCONFIGURED = statement("note_provider_misconfigured")
_STATES = statement("select_provider_states")


@dataclass(frozen=True, slots=True)
class ProviderState:
    """What is known of a provider and credential; the error is the newest since it last took anything, masked."""

    provider: str
    credential: str
    last_accepted_at: datetime | None
    configuration_error: str | None
    configuration_error_at: datetime | None


def last_accepted_at(connection: Connection, *, provider: str, credential: str) -> datetime | None:
    """When the provider last took a message of anybody's; None when it never did."""
    row = connection.execute(_LAST_ACCEPTED, {"provider": provider, "credential": credential}).fetchone()
    return None if row is None else row[0]


def note_accepted(connection: Connection, *, provider: str, credential: str) -> None:
    """The provider took something just now."""
    connection.execute(_NOTE_ACCEPTED, {"provider": provider, "credential": credential})


def note_misconfigured(connection: Connection, *, provider: str, credential: str, error: str) -> None:
    """The provider refused our account or set-up; `error` is masked."""
    connection.execute(_NOTE_MISCONFIGURED, {"provider": provider, "credential": credential, "error": error})


def states(connection: Connection) -> list[ProviderState]:
    """Every provider and credential that took a message or refused our set-up, by name."""
    return [ProviderState(*row) for row in connection.execute(_STATES)]

"""What the fleet knows of a provider: when it last took anything, whether its set-up was refused, who holds it."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID, uuid4

from shared.domain.masking import mask_text
from shared.ledger.db import Connection
from shared.ledger.queries import statement

_LAST_ACCEPTED = statement("provider_last_accepted")
_NOTE_ACCEPTED = statement("note_provider_accepted")
_NOTE_MISCONFIGURED = statement("note_provider_misconfigured")
_STATES = statement("select_provider_states")
_STANDING = statement("provider_standing")
_HOLD = statement("hold_provider")
_RELEASE = statement("release_provider")
_HOLDS = statement("select_provider_holds")


@dataclass(frozen=True, slots=True)
class ProviderState:
    """What is known of a provider and credential; the error is the newest since it last took anything, masked."""

    provider: str
    credential: str
    last_accepted_at: datetime | None
    configuration_error: str | None
    configuration_error_at: datetime | None


@dataclass(frozen=True, slots=True)
class ProviderHold:
    """A person's hold on a provider and credential; `id` changes with each new reason, `since` does not."""

    id: UUID
    provider: str
    credential: str
    operator: str
    reason: str
    since: datetime


@dataclass(frozen=True, slots=True)
class Standing:
    """What a claim must know: when the provider last took anything, and who holds it; None where there is nothing."""

    took_at: datetime | None
    hold: ProviderHold | None


def standing(connection: Connection, *, provider: str, credential: str) -> Standing:
    """Read both in one statement: it is asked for each window."""
    row = connection.execute(_STANDING, {"provider": provider, "credential": credential}).fetchone()
    if row is None:
        return Standing(None, None)
    return Standing(row[0], ProviderHold(*row[1:]) if row[1] is not None else None)


def hold(
    connection: Connection, *, provider: str, credential: str, operator: str, reason: str, since: datetime | None = None
) -> tuple[ProviderHold, bool]:
    """
    Hold a provider (`since` now, unless it is known to be older); and whether it was not held before.

    Addresses in the reason are masked.
    """
    facts = {"provider": provider, "credential": credential, "operator": operator, "since": since}
    row = connection.execute(_HOLD, {**facts, "reason": mask_text(reason), "id": uuid4()}).fetchone()
    if row is None:
        raise AssertionError
    return ProviderHold(*row[:-1]), row[-1]


def release(connection: Connection, *, provider: str, credential: str) -> bool:
    """End a hold; False where there was none."""
    row = connection.execute(_RELEASE, {"provider": provider, "credential": credential}).fetchone()
    return row is not None


def holds(connection: Connection) -> list[ProviderHold]:
    """Every hold of today."""
    return [ProviderHold(*row) for row in connection.execute(_HOLDS)]


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

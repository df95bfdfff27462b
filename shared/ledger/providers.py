"""What the fleet knows of a provider: when it last took anything, whether its set-up was refused, who holds it."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID, uuid4

from shared.domain.masking import mask_text
from shared.ledger.db import Connection
from shared.ledger.queries import statement

_NOTE_ACCEPTED = statement("note_provider_accepted")
_NOTE_TAKEN = statement("note_provider_taken")
_NOTE_REFUSED = statement("note_provider_refused")
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
    """
    What a claim must know: when the provider last took anything, and who holds it; None where there is nothing.

    `outage_since`: it was called then and has refused everything up to now; None where it may take messages, or where
    nobody has asked it for so long that nobody knows.
    """

    took_at: datetime | None
    outage_since: datetime | None
    hold: ProviderHold | None


def standing(connection: Connection, *, provider: str, credential: str, unbroken_s: float) -> Standing:
    """
    Read all in one statement: it is asked for each window.

    `unbroken_s`: seconds without a refusal after which an outage is one no more (`RetryPolicy.unbroken_s`).
    """
    facts = {"provider": provider, "credential": credential, "unbroken_s": unbroken_s}
    row = connection.execute(_STANDING, facts).fetchone()
    if row is None:
        return Standing(None, None, None)
    return Standing(row[0], row[1], ProviderHold(*row[2:]) if row[2] is not None else None)


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


def note_accepted(connection: Connection, *, provider: str, credential: str) -> None:
    """The provider took something just now."""
    connection.execute(_NOTE_ACCEPTED, {"provider": provider, "credential": credential})


def note_taken(connection: Connection, *, provider: str, credential: str, at: datetime) -> None:
    """A call that began at `at`, and whose outcome nobody knew, was taken."""
    connection.execute(_NOTE_TAKEN, {"provider": provider, "credential": credential, "at": at})


def note_refused(connection: Connection, *, provider: str, credential: str, unbroken_s: float) -> None:
    """The provider was called just now and took nothing: an outage begins, or goes on (`standing`)."""
    connection.execute(_NOTE_REFUSED, {"provider": provider, "credential": credential, "unbroken_s": unbroken_s})


def note_misconfigured(connection: Connection, *, provider: str, credential: str, error: str) -> None:
    """The provider refused our account or set-up; `error` is masked."""
    connection.execute(_NOTE_MISCONFIGURED, {"provider": provider, "credential": credential, "error": error})


def states(connection: Connection) -> list[ProviderState]:
    """Every provider and credential that took a message or refused our set-up, by name."""
    return [ProviderState(*row) for row in connection.execute(_STATES)]

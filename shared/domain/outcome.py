"""
What a provider call came to: a closed set, matched exhaustively.

    Outcome
    ├── Accepted        the provider took it
    ├── Transient       surely not taken, may work later
    ├── Throttled       surely not taken, told to slow down
    ├── Permanent       surely not taken, will never work as it is
    ├── Suppressed      the provider refuses this recipient for good (opted out, complained)
    ├── Configuration   our account, credentials or sender are wrong; no recipient's fault
    ├── Ambiguous       may have been taken
    └── NotAttempted    no call was made

Expected provider answers are these values, never exceptions. `detail` is free text from outside: it
passes `shared.domain.masking.mask_text` before it is stored or logged.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Scope(StrEnum):
    """Whom an outcome speaks about; only provider-scope failures count for the circuit."""

    RECIPIENT = "recipient"
    MESSAGE = "message"
    SENDER = "sender"
    PROVIDER = "provider"


@dataclass(frozen=True, slots=True)
class Accepted:
    """The provider answered that it owns the message now. `ref` is its id, None where the answer was unreadable."""

    ref: str | None


@dataclass(frozen=True, slots=True)
class Transient:
    """
    Surely not accepted. `code` is the provider's or ours, short and stable: it names the failure's group.

    `retry_after_s` is the provider's wish in seconds, unclamped: the backoff is not shorter.
    """

    scope: Scope
    code: str
    detail: str = ""
    timed_out: bool = False
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Throttled:
    """
    Surely not accepted. `retry_after_s` is the provider's wish in seconds, unclamped, None where it gave none.

    With the sender's scope its queue at the provider is full. We have one for each provider, so everything waits.
    """

    code: str
    detail: str = ""
    retry_after_s: float | None = None
    scope: Scope = Scope.PROVIDER


@dataclass(frozen=True, slots=True)
class Permanent:
    """Surely not accepted; `scope` is RECIPIENT or MESSAGE."""

    scope: Scope
    code: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Suppressed:
    """The provider will not deliver to this recipient; the address joins the tenant's suppression list."""

    code: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Configuration:
    """Nothing was accepted; `scope` is PROVIDER (credentials, account) or SENDER (this From is not allowed)."""

    scope: Scope
    code: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """
    The request or a part of it left and no answer proves either. `evidence` is what a person needs to judge.

    `provider_failed`: it dropped the connection, or a gateway before it gave up; like a timeout that counts for the
    circuit, or a provider that drops everything would leave a whole send unsure.
    """

    code: str
    detail: str = ""
    timed_out: bool = False
    provider_failed: bool = False
    evidence: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NotAttempted:
    """The call was never started: circuit open, draining, or an interrupt before the first byte."""

    reason: str


Outcome = Accepted | Transient | Throttled | Permanent | Suppressed | Configuration | Ambiguous | NotAttempted

_NAMES: dict[type[Outcome], str] = {
    Accepted: "accepted",
    Ambiguous: "ambiguous",
    Configuration: "configuration",
    NotAttempted: "not_attempted",
    Permanent: "permanent",
    Suppressed: "suppressed",
    Throttled: "throttled",
    Transient: "transient",
}


def name_of(outcome: Outcome) -> str:
    """The word for an outcome's class, as attempts and metrics carry it."""
    return _NAMES[type(outcome)]

"""
A provider that keeps what it is given instead of sending it, for development and for test keys.

The recipient's address may ask for any other outcome. E-mail: the local part, up to a `+`. SMS: the last
four digits.

    accepted      anything else
    permanent     permanent@…     …0001     refused for good (recipient)
    suppressed    suppressed@…    …0002     opted out
    transient     transient@…     …0003     provider failure, each time
    throttled     throttled@…     …0004     told to wait 5 s
    ambiguous     ambiguous@…     …0005     taken or not, nobody knows; it is kept
    greylisted    greylisted@…    …0006     recipient's own temporary refusal
    configuration configuration@… …0007     our account is wrong
    flaky         flaky@…         …0008     fails on the first try in this process, then is accepted
    lost          lost@…          …0009     taken or not, nobody knows, and it is not kept; then as flaky
    mended        mended@…        …0010     refused for good, until a person requeues it: then it is accepted

What nobody knows is proved: kept messages are found by their key, as at a provider that can be asked.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from shared.domain import resolutions
from shared.domain.ids import IdError, delivery_key, parse_delivery_id
from shared.domain.outcome import (
    Accepted,
    Ambiguous,
    Configuration,
    Outcome,
    Permanent,
    Scope,
    Suppressed,
    Throttled,
    Transient,
)
from shared.domain.proof import Absent, Pending, Proof, Taken, Unprovable
from workers.providers.http_engine import GLANCE_S
from workers.providers.protocol import EmailMessage, Message

_ASKED: dict[str, Outcome] = {
    "permanent": Permanent(Scope.RECIPIENT, "sandbox_permanent", "the sandbox was asked to refuse this recipient"),
    "suppressed": Suppressed("sandbox_suppressed", "the sandbox was asked to call this recipient opted out"),
    "transient": Transient(Scope.PROVIDER, "sandbox_transient", "the sandbox was asked to fail"),
    "throttled": Throttled("sandbox_throttled", "the sandbox was asked to throttle", retry_after_s=5.0),
    "ambiguous": Ambiguous("sandbox_ambiguous", "the sandbox was asked to lose the answer"),
    "greylisted": Transient(Scope.RECIPIENT, "sandbox_greylisted", "the sandbox was asked to greylist"),
    "configuration": Configuration(Scope.PROVIDER, "sandbox_configuration", "the sandbox was asked to refuse us"),
}
_BY_DIGITS = dict(zip((f"{n:04}" for n in range(1, 11)), [*_ASKED, "flaky", "lost", "mended"], strict=True))
_FIRST: dict[str, Outcome] = {
    "flaky": Transient(Scope.PROVIDER, "sandbox_flaky", "the sandbox was asked to fail once"),
    "lost": Ambiguous("sandbox_lost", "the sandbox was asked to lose the message"),
}
_FIRST_LIFE = Permanent(Scope.RECIPIENT, "sandbox_mended", "the sandbox was asked to refuse this until a requeue")

_STORE_AWAY = Transient(Scope.PROVIDER, "sandbox_store_away", "the sandbox's store could not be reached")


class StoreAway(Exception):  # noqa: N818  # a state of the world, not a mistake
    """Where the sandbox keeps its messages cannot be reached now."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Which of the keys asked for are kept, and since when nothing was forgotten (None: ever)."""

    keys: frozenset[UUID]
    since: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxConfig:
    """`latency_ms` is waited once per window, as if all its calls ran at the same time."""

    latency_ms: int = 0


class SandboxProvider:
    """
    The adapter. `keep` stores the accepted messages of a window, all in one go, or raises StoreAway.

    `find` looks keys up among what is kept, or raises it too.

    A message kept twice is kept once, so that one whose keeping was not confirmed may simply come again.
    """

    name = "sandbox"
    credential = "sandbox"
    resolution = resolutions.SANDBOX

    def __init__(
        self,
        config: SandboxConfig,
        *,
        keep: Callable[[Sequence[Message]], None],
        find: Callable[[Sequence[UUID]], Kept],
    ) -> None:
        self._latency_s = config.latency_ms / 1_000
        self._keep = keep
        self._find = find
        self._stopped = False
        self._failed_once: set[str] = set()

    def send(self, messages: Sequence[Message]) -> Iterator[tuple[int, Outcome] | None]:
        """Answer as asked; messages are kept before any is answered."""
        outcomes = [self._outcome_of(message) for message in messages]
        kept = [
            message
            for message, outcome in zip(messages, outcomes, strict=True)
            if isinstance(outcome, Accepted | Ambiguous) and outcome != _FIRST["lost"]
        ]
        try:
            if kept:
                self._keep(kept)
        except StoreAway:
            outcomes = [_STORE_AWAY if isinstance(outcome, Accepted | Ambiguous) else outcome for outcome in outcomes]
        ends_at = time.monotonic() + self._latency_s
        while (left_s := ends_at - time.monotonic()) > 0:
            if self._stopped:
                lost = Ambiguous("call_cut", "the process had to stop before the answer came")
                outcomes = [lost] * len(messages)
                break
            time.sleep(min(left_s, GLANCE_S))
            yield None
        yield from enumerate(outcomes)

    def cut(self) -> None:
        """See `Provider.cut`; what was asked for is kept by now."""
        self._stopped = True

    def prove(self, messages: Sequence[Message]) -> Iterator[tuple[int, Proof] | None]:
        """Look the messages up among what is kept."""
        try:
            kept = self._find([message.key for message in messages])
        except StoreAway:
            yield from [(index, Pending("the sandbox's store could not be reached")) for index in range(len(messages))]
            return
        for index, message in enumerate(messages):
            if message.key in kept.keys:
                yield index, Taken(f"sandbox-{message.key}", "the sandbox has it")
            elif kept.since is not None and kept.since > message.first_attempt_at:
                yield index, Unprovable("the sandbox's inbox has forgotten messages of that time")
            else:
                yield index, Absent("the sandbox does not have it")

    def close(self) -> None:
        """Nothing is open."""

    def _outcome_of(self, message: Message) -> Outcome:
        asked = _asked_by(message)
        if asked == "mended" and _is_first_life(message):
            return _FIRST_LIFE
        if asked in _FIRST:
            key = str(message.key)
            if key not in self._failed_once:
                self._failed_once.add(key)
                return replace(_FIRST[asked])
            self._failed_once.discard(key)
        # A copy: each message is a call of its own, and what is one object counts as one call.
        return replace(_ASKED[asked]) if asked in _ASKED else Accepted(f"sandbox-{message.key}")


def _is_first_life(message: Message) -> bool:
    try:
        return message.key == delivery_key(*parse_delivery_id(message.delivery_id), 0)
    except IdError:  # a digest is no delivery
        return False


def _asked_by(message: Message) -> str:
    if isinstance(message, EmailMessage):
        return message.to.partition("@")[0].partition("+")[0].lower()
    return _BY_DIGITS.get(message.to[-4:], "")

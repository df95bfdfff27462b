"""When the same refusal of several recipients is about us: a relay that carries no mail of ours."""

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from shared.domain.signature import normalise_detail

#: different recipients refused in the same words, with no message taken in between, that make it our configuration.
DENIED_IN_A_ROW = 5
#: seconds after the last of them. A relay that is set aside is looked at every five minutes by one call
#: (CONFIGURATION_RECHECK_MS): refused again in the same words it stays aside, but not for ever, since it may take all
#: mail but that which happens to wait for it. Then that one recipient fails and the others get their turn, until the
#: next one, whoever it is, is refused in these words before anything is taken.
_MEMORY_S = 600.0


@dataclass(slots=True)
class _Cause:
    """
    The recipients refused in the same words; it is forgotten at `until` unless it is known.

    `is_known`: they were too many once. `is_ours`: each refusal is our configuration's up to `until`; after that one
    recipient fails, and the next refusal begins it anew.
    """

    until: float
    recipients: set[str] = field(default_factory=set)
    is_ours: bool = False
    is_known: bool = False


class Denials:
    """
    What a relay has refused since it last took a message; shared by the threads of a process.

    `clock` gives monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._refused: dict[str, _Cause] = {}

    def note(self, recipient: str, text: str) -> bool:
        """Note a refusal of a recipient; True where it is one of too many for the same cause."""
        words, now = cause_of(recipient, text), self._clock()
        with self._lock:
            self._refused = {
                kept: cause for kept, cause in self._refused.items() if cause.until > now or cause.is_known
            }
            cause = self._refused.setdefault(words, _Cause(now + _MEMORY_S))
            if cause.is_ours:
                cause.is_ours = cause.until > now
                return cause.is_ours
            if cause.is_known or recipient not in cause.recipients:
                cause.until = now + _MEMORY_S
            if not cause.is_known:
                cause.recipients.add(recipient)
                cause.is_known = len(cause.recipients) >= DENIED_IN_A_ROW
            cause.is_ours = cause.is_known
            return cause.is_ours

    def forget(self) -> None:
        """The relay took a message: it carries mail of ours."""
        with self._lock:
            self._refused.clear()


def cause_of(recipient: str, text: str) -> str:
    """What a relay's words say without this recipient: addresses, its domain, numbers and ids are taken out."""
    domain = recipient.rpartition("@")[2]
    return normalise_detail(re.sub(re.escape(domain), "#", text, flags=re.IGNORECASE)).lower()

"""When the same refusal of several recipients is about us: a relay that carries no mail of ours."""

import re
import threading
from collections.abc import Callable

from shared.domain.signature import normalise_detail

#: different recipients refused in the same words, with no message taken in between, that make it our configuration.
DENIED_IN_A_ROW = 5
#: seconds after the last of them. A relay that is set aside is looked at every five minutes by one call
#: (CONFIGURATION_RECHECK_MS): refused again in the same words it stays aside, but not for ever, since it may take all
#: mail but that which happens to wait for it. Then that one recipient fails, and the others get their turn.
_MEMORY_S = 600.0


class Denials:
    """
    What a relay has refused since it last took a message; shared by the threads of a process.

    `clock` gives monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        #: Each cause with its recipients, and until when it is remembered.
        self._refused: dict[str, tuple[set[str], float]] = {}

    def note(self, recipient: str, text: str) -> bool:
        """Note a refusal of a recipient; True where it is one of too many for the same cause."""
        cause, now = cause_of(recipient, text), self._clock()
        with self._lock:
            self._refused = {kept: entry for kept, entry in self._refused.items() if entry[1] > now}
            recipients, _ = self._refused.get(cause, (set(), 0.0))
            if recipient not in recipients and len(recipients) < DENIED_IN_A_ROW:
                self._refused[cause] = ({*recipients, recipient}, now + _MEMORY_S)
            return len(self._refused[cause][0]) >= DENIED_IN_A_ROW

    def forget(self) -> None:
        """The relay took a message: it carries mail of ours."""
        with self._lock:
            self._refused.clear()


def cause_of(recipient: str, text: str) -> str:
    """What a relay's words say without this recipient: addresses, its domain, numbers and ids are taken out."""
    domain = recipient.rpartition("@")[2]
    return normalise_detail(re.sub(re.escape(domain), "#", text, flags=re.IGNORECASE)).lower()

"""An SMTP relay that may cut the line after it took a message: nobody can ask it afterwards."""

import contextlib
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from tests.support.scripted_http import RESET, Step
from tests.support.scripted_smtp import ACCEPT_THEN, ScriptedSmtp, scripted_smtp
from tests.system.chaos.provider import Counts

_TAKEN = b"250 2.0.0 Ok: queued\r\n"


class Relay:
    """The relay as a provider of a scenario. `behave(cut=0.1)`: every tenth message is taken and not answered."""

    def __init__(self, server: ScriptedSmtp, seed: str) -> None:
        self._server = server
        self._random = random.Random(seed)
        self._usual_cut = self._cut = 0.0
        self._cuts = 0
        server.always("dot", self._dot)

    @property
    def settings(self) -> Mapping[str, str]:
        return {
            "EMAIL_PROVIDER": "smtp",
            "SMTP_HOST": "127.0.0.1",
            "SMTP_PORT": str(self._server.port),
            "SMTP_SECURITY": "none",
        }

    def behave(self, *, cut: float | None = None, **changes: Any) -> None:
        assert not changes, changes
        self._cut = self._usual_cut if cut is None else cut

    def usually(self, *, latency_ms: int, cut: float = 0.0) -> None:
        """It answers at once, whatever the latency."""
        self._usual_cut = self._cut = cut

    def counts(self) -> Counts:
        return Counts(Counter(taken.recipient for taken in list(self._server.taken)), {"cut": self._cuts})

    def _dot(self) -> Step:
        if self._random.random() < self._cut:
            self._cuts += 1
            return [ACCEPT_THEN, RESET]
        return [_TAKEN]


@contextlib.contextmanager
def relay(seed: str) -> Iterator[Relay]:
    """Run a relay in threads of this process."""
    with scripted_smtp() as server:
        yield Relay(server, seed)

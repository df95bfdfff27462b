"""The provider as a scenario sees it: told how to behave, asked what it accepted."""

import contextlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tests.support.processes import CHECKOUT

#: ms; with the cap of the stage, how fast a healthy provider lets a send go
LATENCY_MS = 50
HEALTHY: Mapping[str, Any] = {"latency_ms": LATENCY_MS, "faults": [], "listening": True, "lookup": "ok"}


@dataclass(frozen=True)
class Counts:
    """What the provider did so far. `accepted` is by recipient; `numbers` has calls, refused, cut, hung, peak, …"""

    accepted: Mapping[str, int]
    numbers: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.accepted.values())

    def number(self, name: str) -> int:
        return self.numbers.get(name, 0)


class Provider(Protocol):
    """Anything that takes messages and counts them."""

    @property
    def settings(self) -> Mapping[str, str]:
        """The environment that sends a fleet's e-mail to it."""
        ...

    def behave(self, **changes: Any) -> None:
        """Change how it answers from now on; without arguments it is healthy again."""
        ...

    def usually(self, *, latency_ms: int, cut: float = 0.0) -> None:
        """What it does without other orders: how long it takes, and the share of calls it takes without an answer."""
        ...

    def counts(self) -> Counts: ...


class ChesProcess:
    """A scripted CHES in a process of its own."""

    def __init__(self, port: int, orders_port: int) -> None:
        self._url, self._orders = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{orders_port}"
        self._usual = dict(HEALTHY)

    @property
    def settings(self) -> Mapping[str, str]:
        return {
            "EMAIL_PROVIDER": "ches",
            "CHES_BASE_URL": f"{self._url}/api/v1",
            "CHES_TOKEN_URL": f"{self._url}/token",
            "CHES_CLIENT_ID": "chaos",
            "CHES_CLIENT_SECRET": "chaos",
        }

    def behave(self, **changes: Any) -> None:
        self._ask("/mode", {**self._usual, **changes})

    def usually(self, *, latency_ms: int, cut: float = 0.0) -> None:
        faults = [{"kind": "cut", "share": cut}] if cut else []
        self._usual = {**HEALTHY, "latency_ms": latency_ms, "faults": faults}
        self.behave()

    def counts(self) -> Counts:
        answer = self._ask("/counts", None)
        return Counts(answer.pop("accepted"), answer)

    def _ask(self, path: str, body: object) -> Any:
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(self._orders + path, data=data), timeout=60) as answer:
            return json.load(answer)


@contextlib.contextmanager
def ches_process(seed: str) -> Iterator[ChesProcess]:
    """Run a scripted CHES; it ends with this block, or with this process."""
    command = [sys.executable, "-m", "tests.system.chaos.ches", "--seed", seed]
    with subprocess.Popen(command, cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        _, port, orders_port = process.stdout.readline().split()
        ches = ChesProcess(int(port), int(orders_port))
        ches.behave()
        try:
            yield ches
        finally:
            process.stdin.close()
            process.wait(timeout=10)

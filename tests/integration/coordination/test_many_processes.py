"""The guards hold over processes, not only over threads."""

import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from shared.coordination.circuit import Admitted, Circuit
from shared.coordination.redis import RedisLink
from tests.integration.coordination.contender import CAP, POLICY

PROCESSES = 8


class Contender:
    """One contending process; what it says goes to a queue with its number."""

    def __init__(self, number: int, url: str, namespace: str, role: str, said: "queue.Queue[tuple[int, str]]") -> None:
        self.number = number
        command = [sys.executable, "-m", "tests.integration.coordination.contender", url, namespace, role]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self._said = said
        threading.Thread(target=self._listen, daemon=True).start()

    def tell(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._said.put((self.number, line.strip()))
        self._said.put((self.number, "ended"))


Said = queue.Queue[tuple[int, str]]
Start = Callable[[str], tuple[list[Contender], Said]]


@pytest.fixture
def start(redis_server_url: str, namespace: str) -> Iterator[Start]:
    contenders: list[Contender] = []

    def begin(role: str) -> tuple[list[Contender], Said]:
        said: Said = queue.Queue()
        contenders.extend(Contender(n, redis_server_url, namespace, role, said) for n in range(PROCESSES))
        for _ in contenders:
            assert said.get(timeout=30)[1] == "ready"
        for contender in contenders:
            contender.tell("go")
        return contenders, said

    yield begin
    for contender in contenders:
        contender.end()


@pytest.fixture
def open_circuit(link: RedisLink, namespace: str) -> Circuit:
    circuit = Circuit(link, provider="ches", credential="a1", policy=POLICY, namespace=namespace)
    permit = circuit.admit()
    assert isinstance(permit, Admitted)
    circuit.report(permit, failures=5)
    return circuit


def test_eight_processes_make_one_probe_at_a_time(open_circuit: Circuit, start: Start) -> None:
    contenders, said = start("probe")
    for _ in range(3):
        number, word = said.get(timeout=10)
        assert word == "probe"
        # The others ask all the while, each every few milliseconds, for longer than the circuit is open.
        with pytest.raises(queue.Empty):
            said.get(timeout=POLICY.open_s * 2)
        contenders[number].tell("failure")
    number, word = said.get(timeout=10)
    assert word == "probe"
    contenders[number].tell("success")
    assert [said.get(timeout=10)[1] for _ in range(2 * PROCESSES)].count("closed") == PROCESSES
    assert open_circuit.snapshot().state == "closed"


def test_a_killed_prober_is_followed_by_one_other(open_circuit: Circuit, start: Start) -> None:
    _, said = start("die")
    for died in range(3):
        probed = said.get(timeout=10)
        assert probed == (probed[0], "probe"), died
        # Never two: until the lease is over all anyone says is that the prober has ended.
        assert said.get(timeout=10) == (probed[0], "ended")
    assert open_circuit.snapshot().state != "closed"


def test_eight_processes_never_exceed_the_cap(start: Start) -> None:
    _, said = start("slots")
    changes: list[tuple[int, int]] = []
    running = PROCESSES
    while running:
        _, word = said.get(timeout=30)
        if word == "ended":
            running -= 1
            continue
        began, ended, slots = (int(part) for part in word.split())
        changes += [(began, slots), (ended, -slots)]
    in_flight = highest = 0
    for _, change in sorted(changes):
        in_flight += change
        highest = max(highest, in_flight)
    assert len(changes) > PROCESSES
    assert highest == CAP

"""Start the project's real processes in a test, and end them with it."""

import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from signal import SIGKILL, SIGTERM, Signals

from admin.local.tether import Tether, signal_group
from tests.support.waiting import wait_until

CHECKOUT = Path(__file__).resolve().parents[2]


class RunningProcess:
    """A process under test; `output()` is all it has written so far, both streams."""

    def __init__(
        self, name: str, process: "subprocess.Popen[bytes]", output_file: Path, *, forget: Callable[[], None]
    ) -> None:
        self.name, self.process, self._output_file = name, process, output_file
        self._forget, self._gone = forget, False

    @property
    def pid(self) -> int:
        return self.process.pid

    def output(self) -> str:
        return self._output_file.read_text(errors="replace")

    def is_running(self) -> bool:
        return self.process.poll() is None

    def signal(self, number: Signals) -> None:
        """Signal the process alone, not what it forked."""
        if self.is_running():
            self.process.send_signal(number)

    def signal_group(self, number: Signals) -> None:
        """Signal it and all it forked, as a platform does."""
        if not self._gone:
            signal_group(self.process, number)

    def wait(self, timeout: float = 30.0) -> int:
        """Give the exit code, negative for a signal, once it has ended."""
        wait_until(lambda: not self.is_running(), timeout=timeout, what=f"the end of {self.name}")
        assert self.process.returncode is not None
        return self.process.returncode

    def terminate(self, timeout: float = 30.0) -> int:
        """SIGTERM to the process, then its exit code."""
        self.signal(SIGTERM)
        return self.wait(timeout)

    def kill(self) -> None:
        """SIGKILL to it and all it forked; never again, since another program may be given its number."""
        if self._gone:
            return
        signal_group(self.process, SIGKILL)
        self.process.wait()
        self._forget()
        self._gone = True


class ProcessStarter:
    """
    Starts processes from the checkout with an environment of their own: PATH, HOME, `defaults`, and what is given.

    Calling it takes the command's words (a leading "python" is the tests' own interpreter) and waits until `ready`:
    an http URL that answers 200, a regular expression found in the output, a function, or None for no wait.
    """

    def __init__(self, tether: Tether, folder: Path, defaults: Callable[[], Mapping[str, str]]) -> None:
        self._tether, self._folder, self._defaults = tether, folder, defaults
        self.started: list[RunningProcess] = []

    def __call__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        ready: str | Callable[[], object] | None = None,
        timeout: float = 30.0,
        cwd: Path = CHECKOUT,
        name: str = "",
    ) -> RunningProcess:
        words = [sys.executable if word == "python" else str(word) for word in command]
        name = name or " ".join(map(str, command))
        output_file = self._folder / f"process-{len(self.started)}.log"
        with output_file.open("wb") as output:
            process = self._tether.start(words, cwd=cwd, env=self._environment(env or {}), output=output)
        running = RunningProcess(name, process, output_file, forget=partial(self._tether.forget, process))
        self.started.append(running)
        if ready is not None:
            wait_until(lambda: _is_ready(running, ready), timeout=timeout, what=f"{name} to be ready ({ready})")
        return running

    def end_all(self) -> None:
        """Kill what still runs."""
        for running in self.started:
            running.kill()

    def _environment(self, given: Mapping[str, str]) -> dict[str, str]:
        scripts = str(Path(sys.executable).parent)
        path = os.pathsep.join([scripts, os.environ.get("PATH", os.defpath)])  # noqa: TID251
        home = os.environ.get("HOME", "/")  # noqa: TID251
        base = {"PATH": path, "HOME": home, "PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": "default"}
        return {**base, **self._defaults(), **given}


def _is_ready(running: RunningProcess, ready: str | Callable[[], object]) -> bool:
    if not running.is_running():
        raise AssertionError(f"{running.name} ended with {running.process.returncode}:\n{running.output()[-4000:]}")
    if callable(ready):
        return bool(ready())
    if ready.startswith("http://"):
        return answers(ready)
    return re.search(ready, running.output()) is not None


def answers(url: str) -> bool:
    """Tell whether an address answers 200 now."""
    with (
        suppress(urllib.error.URLError, ConnectionError, TimeoutError),
        urllib.request.urlopen(url, timeout=5) as answer,
    ):
        return bool(answer.status == 200)
    return False


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; a zombie is dead: who reaps it, and when, is not ours to say."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        if Path("/proc/self").exists():
            return False
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return True
    return state != "Z"

"""Run the processes of a Procfile as a platform does: restart what dies, drain on request, kill what does not end."""

import os
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from admin.local.console import Console
from admin.local.procfile import Entry
from admin.local.tether import Tether, signal_group

#: s; a process that dies again and again is started again after 1, 2, 4 … seconds
FIRST_BACKOFF_S, LONGEST_BACKOFF_S = 1.0, 30.0
#: s; one that lived this long is taken for healthy: its back-off starts anew
HEALTHY_AFTER_S = 60.0
#: s; between two looks at what has ended or is due
TICK_S = 0.1
#: s; what a second request to stop leaves of the drain
HURRIED_DRAIN_S = 5.0
#: lines of a dead process that are shown again
LAST_LINES = 8
#: bytes; a line without an end is shown in pieces of this size
LONGEST_LINE = 64 * 1024


class Managed:
    """One process type: its present process, if any, and when to start the next."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.process: subprocess.Popen[bytes] | None = None
        self.started_at = self.start_at = 0.0
        self.backoff = FIRST_BACKOFF_S
        self.partial_line = b""
        self.last_lines: deque[str] = deque(maxlen=LAST_LINES)


class Fleet:
    """
    All processes of one run. Everything happens in the thread that calls it, since the tether needs that.

    Args:
        environment: the whole environment of every process.
        stop_requests: how often the person asked to stop so far; looked at several times a second.
    """

    def __init__(
        self,
        *,
        folder: Path,
        environment: Mapping[str, str],
        tether: Tether,
        console: Console,
        stop_requests: Callable[[], int],
    ) -> None:
        self._folder, self._environment = folder, environment
        self._tether, self._console, self._stop_requests = tether, console, stop_requests
        self._managed: list[Managed] = []
        self._selector = selectors.DefaultSelector()
        self._last_line_at = 0.0

    @property
    def quiet_for(self) -> float:
        """Seconds since a process last wrote a line."""
        return time.monotonic() - self._last_line_at

    def run_once(self, entry: Entry) -> int:
        """Run a process to its end and give its exit code; a request to stop is passed on to it."""
        managed = Managed(entry)
        self._start(managed)
        told = False
        while managed.process and managed.process.poll() is None:
            if self._stop_requests() and not told:
                told = True
                signal_group(managed.process, signal.SIGTERM)
            self._show_output()
        return self._bury(managed)

    def start(self, entries: Sequence[Entry]) -> None:
        """Start one process of every entry."""
        self._managed = [Managed(entry) for entry in entries]
        for managed in self._managed:
            self._start(managed)

    def tick(self) -> None:
        """Show what was written meanwhile, tell of deaths, and start again what is due."""
        self._show_output()
        now = time.monotonic()
        for managed in self._managed:
            if managed.process is None:
                if now >= managed.start_at:
                    self._console.step(f"starting {managed.entry.name} again")
                    self._start(managed)
            elif managed.process.poll() is not None:
                self._plan_restart(managed, now)

    def drain(self, patience: float) -> None:
        """
        Ask every process to end and wait; kill what is left after `patience` seconds.

        The signal goes to the whole group, as on Heroku, where every process of a dyno gets it. A further request to
        stop shortens the wait, one more ends it.
        """
        asked_before, further = self._stop_requests(), 0
        deadline = time.monotonic() + patience
        for managed in self._managed:
            if managed.process:
                signal_group(managed.process, signal.SIGTERM)
        while any(managed.process for managed in self._managed):
            self._show_output()
            if self._stop_requests() - asked_before > further:
                further += 1
                left = HURRIED_DRAIN_S if further == 1 else 0.0
                self._console.step(f"hurrying: what is left in {left:.0f} s is killed")
                deadline = min(deadline, time.monotonic() + left)
            late = time.monotonic() > deadline
            for managed in self._managed:
                if managed.process is None:
                    continue
                if late and managed.process.poll() is None:
                    self._console.warn(f"{managed.entry.name} did not end in time: killed")
                    signal_group(managed.process, signal.SIGKILL)
                    managed.process.wait()
                if managed.process.poll() is not None:
                    code = self._bury(managed)
                    self._console.step(f"{managed.entry.name} ended ({describe_exit(code)})")

    def _start(self, managed: Managed) -> None:
        process = self._tether.start(
            managed.entry.shell_command,
            cwd=self._folder,
            env=self._environment,
            output=subprocess.PIPE,
        )
        managed.process, managed.started_at, managed.partial_line = process, time.monotonic(), b""
        managed.last_lines.clear()
        if process.stdout:
            os.set_blocking(process.stdout.fileno(), False)
            self._selector.register(process.stdout, selectors.EVENT_READ, managed)

    def _plan_restart(self, managed: Managed, now: float) -> None:
        code = self._bury(managed)
        if now - managed.started_at > HEALTHY_AFTER_S:
            managed.backoff = FIRST_BACKOFF_S
        managed.start_at = now + managed.backoff
        self._console.warn(
            f"{managed.entry.name} ended unexpectedly ({describe_exit(code)}); "
            f"it starts again in {managed.backoff:.0f} s. Its last lines:"
        )
        for line in managed.last_lines:
            self._console.block(f"      {line}")
        managed.backoff = min(managed.backoff * 2, LONGEST_BACKOFF_S)

    def _bury(self, managed: Managed) -> int:
        """Show the rest of an ended process's output, kill what it left behind, and give its exit code."""
        process = managed.process
        if process is None:
            return 0
        code = process.wait()
        self._tether.forget(process)
        if process.stdout:
            while self._read(managed):
                pass
            if managed.partial_line:
                self._show_line(managed, managed.partial_line)
            if process.stdout in self._selector.get_map():
                self._selector.unregister(process.stdout)
            process.stdout.close()
        managed.process = None
        return code

    def _show_output(self) -> None:
        """Show what came; returns after TICK_S at the latest, at once when something came."""
        for key, _ in self._selector.select(TICK_S):
            self._read(key.data)

    def _read(self, managed: Managed) -> bool:
        """Show a piece of what can be read without waiting; False when there was nothing."""
        pipe = managed.process.stdout if managed.process else None
        if pipe is None:
            return False
        chunk = pipe.read(LONGEST_LINE)  # None: nothing now, b"": nothing ever again
        if chunk == b"" and pipe in self._selector.get_map():
            self._selector.unregister(pipe)
        if not chunk:
            return False
        *lines, managed.partial_line = (managed.partial_line + chunk).split(b"\n")
        for line in lines:
            self._show_line(managed, line)
        if len(managed.partial_line) > LONGEST_LINE:
            self._show_line(managed, managed.partial_line)
            managed.partial_line = b""
        return True

    def _show_line(self, managed: Managed, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip("\r")
        managed.last_lines.append(text)
        self._last_line_at = time.monotonic()
        self._console.process_line(managed.entry.name, text)


def describe_exit(code: int) -> str:
    """Say how a process ended, in words: its exit code, or the signal that ended it."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"

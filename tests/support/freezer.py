"""A server that hangs: its processes are stopped, its connections stay open, and it says nothing more."""

import os
import signal
import subprocess
from contextlib import suppress

from admin.local.postgres import Postgres
from admin.local.valkey import Valkey


class Freezer:
    """A server of one's own that can be stopped whole."""

    def __init__(self, server: Postgres | Valkey) -> None:
        self.url = server.start()
        self._server = server
        self._stopped: list[int] = []

    def freeze(self) -> None:
        """Stop every process of it; the first is the one that starts others."""
        assert self._server.process is not None
        pid = self._server.process.pid
        self._stop(pid)
        children = subprocess.run(["pgrep", "-P", str(pid)], check=False, capture_output=True, text=True).stdout.split()
        for child in children:
            self._stop(int(child))

    def _stop(self, pid: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            self._stopped.append(pid)

    def thaw(self) -> None:
        """Let it go on."""
        for pid in self._stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self._stopped.clear()

    def stop(self) -> None:
        """End it."""
        self.thaw()
        self._server.stop()

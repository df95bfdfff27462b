"""
Start processes that cannot outlive this one, however it ends.

Two bonds, since neither is enough alone. On Linux the kernel signals a child when the thread that started it ends
(PR_SET_PDEATHSIG); that reaches no grandchildren, such as the workers that dramatiq and gunicorn fork. So a warden, a
process of its own, holds the reading end of a pipe: when that closes it kills every process group still registered. It
is also what there is on macOS, which has no such signal.

This file is run as a script too, with nothing but the standard library: `launch` becomes the program it is given.
"""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

#: prctl(2), linux/prctl.h
PR_SET_PDEATHSIG = 1


class Account(NamedTuple):
    """An operating system account that a program is run as."""

    name: str
    uid: int
    gid: int


class Tether:
    """
    Starts programs and ends them with this process.

    Use it from one thread that lives as long as the programs: Linux counts the end of the starting thread as the
    parent's death.
    """

    def __init__(self) -> None:
        self._warden = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, "warden"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )

    def start(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        stdin: int | None = subprocess.DEVNULL,
        output: int | IO[bytes],
        account: Account | None = None,
        umask: int = -1,
    ) -> subprocess.Popen[bytes]:
        """
        Start a program as the leader of its own session, so that the terminal's Ctrl-C does not reach it.

        Args:
            command: the program and its arguments.
            cwd: its working directory.
            env: its whole environment.
            stdin: as for subprocess.Popen.
            output: where both its outputs go.
            account: whom to become first; None keeps the present one.
            umask: its file mode mask; -1 keeps the present one.
        """
        become = (account.uid, account.gid) if account else ("-", "-")
        launch = [sys.executable, "-I", "-S", __file__, "launch", os.getpid(), *become, *command]
        process = subprocess.Popen(
            [str(word) for word in launch],
            cwd=cwd,
            env=dict(env),
            stdin=stdin,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            umask=umask,
        )
        self._tell(f"+{process.pid}")
        return process

    def forget(self, process: subprocess.Popen[bytes]) -> None:
        """Kill what is left of an ended program's group, then leave its number alone: it may be given out again."""
        signal_group(process, signal.SIGKILL)
        self._tell(f"-{process.pid}")

    def close(self) -> None:
        """Kill whatever was started and not forgotten."""
        if self._warden.stdin:
            self._warden.stdin.close()
        self._warden.wait()

    def _tell(self, line: str) -> None:
        if self._warden.stdin is None or self._warden.poll() is not None:
            return  # somebody killed the warden; the kernel's signal remains
        with suppress(BrokenPipeError):
            self._warden.stdin.write(f"{line}\n".encode())
            self._warden.stdin.flush()


def signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Signal a program started by a Tether and everything it forked; nothing happens when all have ended."""
    # macOS answers EPERM for a group of zombies.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _launch(parent: int, uid: str, gid: str, command: list[str]) -> None:
    """Become `command`; the bond is made after the account, since changing credentials clears it (prctl(2))."""
    if uid != "-":
        os.setgroups([])
        os.setgid(int(gid))
        os.setuid(int(uid))
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("the process that started this one is gone")
    # A shell without job control starts its background jobs deaf to SIGINT, and the deafness is inherited.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        os.execvpe(command[0], command, os.environ)  # noqa: S606, TID251 - becomes what it was asked to
    except OSError as fault:
        sys.exit(f"{command[0]}: {fault.strerror}")


def _warden() -> None:
    """Keep the list of groups until the pipe closes, then kill them."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin.buffer:
        change = int(line)
        if change > 0:
            groups.add(change)
        else:
            groups.discard(-change)
    for group in groups:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    if sys.argv[1] == "warden":
        _warden()
    else:
        _launch(int(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5:])

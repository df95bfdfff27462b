"""End a server that an earlier start left behind, and disown stale notes of its process id."""

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

#: s; a server that was left alone only has to write what it holds
PATIENCE_S = 10
#: a number that no system gives out (PID_MAX_LIMIT of Linux is 2^22, macOS stops at 99999)
NOBODYS_PID = 2**31 - 1


def stop_leftover(pid_file: Path, *, mark: str) -> None:
    """
    Stop the process named by a pid file if its command line carries `mark`, and disown the file.

    After a crash the number may belong to a zombie or to another program of the same user. Postgres asks only whether
    it is alive, and then refuses to start. The rest of the file stays: by it Postgres sees whether sessions of the dead
    server still use the shared memory.
    """
    try:
        first, *rest = pid_file.read_text().splitlines(keepends=True)
        pid = int(first)
    except (FileNotFoundError, ValueError):
        return
    for number in (signal.SIGINT, signal.SIGKILL):
        deadline = time.monotonic() + PATIENCE_S
        if mark in command_line(pid):
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        while mark in command_line(pid) and time.monotonic() < deadline:
            time.sleep(0.05)
    if pid_file.exists():  # a server that ended by itself has removed it
        pid_file.write_text("".join([f"{NOBODYS_PID}\n", *rest]))


def command_line(pid: int) -> str:
    """Give a live process's command line; empty if there is none or it is a zombie."""
    if Path("/proc/self/cmdline").exists():
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return ""
    found = subprocess.run(["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return found.stdout.strip()

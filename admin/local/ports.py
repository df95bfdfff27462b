"""Loopback ports for the embedded servers and the web process."""

import socket
import sys
from contextlib import closing
from pathlib import Path

LOOPBACK = "127.0.0.1"


def is_free(port: int) -> bool:
    """Tell whether a server could bind the port now; another program may still be faster."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # servers set it: TIME_WAIT is no occupant
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def pick(preferred: int | None = None) -> int:
    """Give the preferred port if it is free, else any free one."""
    if preferred and is_free(preferred):
        return preferred
    with closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def reserve(port: int) -> socket.socket | None:
    """
    Keep other runs of this machine from choosing the port until the socket is closed or its process ends.

    None: another run has it. The port itself is left free for the web process, which binds it seconds later and after
    every restart. What is not a run of ours knows nothing of it.
    """
    note = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    if not sys.platform.startswith("linux"):
        return note  # names without a file are Linux' own
    try:
        note.bind(f"\0tidings-port-{port}")
    except OSError:
        note.close()
        return None
    return note


def remembered(note: Path) -> int | None:
    """Read the port of the last start, so that addresses stay the same across starts; None if there is none."""
    try:
        return int(note.read_text())
    except (FileNotFoundError, ValueError):
        return None

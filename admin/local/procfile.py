"""Read a Procfile: one `name: shell command` a line."""

import re
from pathlib import Path
from typing import NamedTuple

from admin.local.place import SetupError

#: as Heroku and foreman have it
_LINE = re.compile(r"^([A-Za-z0-9_-]+):\s*(\S.*)$")


#: one program with its arguments: no assignment before it, no operator, no substitution but arithmetic
_SIMPLE = re.compile(r"[\w./-]+(\s([^;&|<>()`]|\$\(\([^;&|<>()`]*\)\))*)?")


class Entry(NamedTuple):
    """A process type and the shell command that starts it."""

    name: str
    command: str

    @property
    def shell_command(self) -> list[str]:
        """
        The words to start it by.

        The shell gives way to a simple command. Else it would stay, and the signal to stop, which reaches both, would
        end it at once: a drain could not be told from an end. (bash does this by itself, dash does not.)
        """
        return ["/bin/sh", "-c", f"exec {self.command}" if _SIMPLE.fullmatch(self.command) else self.command]


def parse(text: str) -> list[Entry]:
    """
    Give the entries in their order; blank lines and `#` comments do not count.

    Raises:
        SetupError: a line is no entry, or a name comes twice.
    """
    entries: list[Entry] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = _LINE.match(line.strip())
        if not found:
            raise SetupError(f"Procfile, line {number}: not of the form `name: command`")
        if found[1] in {entry.name for entry in entries}:
            raise SetupError(f"Procfile, line {number}: {found[1]} is there already")
        entries.append(Entry(found[1], found[2]))
    return entries


def read(path: Path) -> list[Entry]:
    """Read and parse a Procfile."""
    try:
        return parse(path.read_text())
    except FileNotFoundError:
        raise SetupError(f"there is no {path}") from None

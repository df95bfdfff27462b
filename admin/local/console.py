"""What the person at the terminal sees: steps, notes, and the processes' lines, each with its name in its colour."""

import sys
from collections.abc import Mapping
from typing import TextIO

#: SGR colours that are readable on light and dark backgrounds alike
_COLOURS = (36, 33, 32, 35, 34, 31)
_RESET = "\x1b[0m"


class Console:
    """Writes whole lines to one stream; colours only for a terminal, and never under NO_COLOR (no-color.org)."""

    def __init__(self, environment: Mapping[str, str], stream: TextIO = sys.stdout) -> None:
        self._stream = stream
        self._colours = stream.isatty() and not environment.get("NO_COLOR")
        self._names: list[str] = []

    def expect(self, names: list[str]) -> None:
        """Learn the names of the processes: their width and colours."""
        self._names = names

    def step(self, text: str) -> None:
        """Tell what happens now."""
        self._write(self._paint(f"==> {text}", "1"))

    def warn(self, text: str) -> None:
        """Tell what went wrong."""
        self._write(self._paint(f"!!! {text}", "1;31"))

    def block(self, text: str) -> None:
        """Show a text of several lines as it is."""
        self._write(text)

    def process_line(self, name: str, line: str) -> None:
        """Show a line that a process wrote."""
        width = max((len(each) for each in self._names), default=0)
        place = self._names.index(name) if name in self._names else 0
        self._write(f"{self._paint(f'{name:<{width}} |', str(_COLOURS[place % len(_COLOURS)]))} {line}")

    def _paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}{_RESET}" if self._colours else text

    def _write(self, text: str) -> None:
        self._stream.write(f"{text}\n")
        self._stream.flush()

"""
The one way to the terminal: what the command prints goes through here, into pipes as well.

Names, addresses and reasons come from outside; an escape sequence in one must not move the cursor, nor a newline forge
a row. `cell` makes one harmless where it is put into a line, `say` what is left in whole lines.
"""

import json
from typing import Any

import click

from shared.domain.visible import visible


def cell(value: object) -> str:
    """A value from outside as part of one line: newlines and tabs are shown as escapes too."""
    return visible(str(value))


def harmless(text: str) -> str:
    """Whole lines, tabs between their cells kept, any other control character shown."""
    return "\n".join("\t".join(map(visible, line.split("\t"))) for line in text.split("\n"))


def say(text: object = "", *, err: bool = False) -> None:
    """Print lines to standard output, or to standard error."""
    click.echo(harmless(str(text)), err=err)


def say_json(value: Any, *, indent: int | None = None) -> None:
    """Print JSON in ASCII: every control character is an escape of JSON's own."""
    click.echo(json.dumps(value, indent=indent).replace("\x7f", "\\u007f"))

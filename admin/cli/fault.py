"""How a command fails: one sentence on standard error and exit code 1."""

import click

from admin.cli.screen import harmless


class CommandError(click.ClickException):
    """The command could not do what was asked; the text says why and, where there is one, the remedy."""

    def format_message(self) -> str:
        """What click prints after `Error:`."""
        return harmless(super().format_message())

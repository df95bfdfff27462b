"""Who gives an operator's command: written into the audit."""

import getpass
from collections.abc import Callable
from typing import Any

import click


def login_name() -> str:
    """Of the account that runs the command; a container may have none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # OSError from Python 3.13 on
        return "unknown"


def as_operator(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the option --operator."""
    return click.option(
        "--operator",
        envvar="TIDINGS_OPERATOR",
        default=login_name,
        show_default="your login name",
        help="Who does this, for the audit.",
    )(command)

"""
Which installation the commands talk to, and as whom.

TIDINGS_URL and TIDINGS_API_KEY, or --url and --key; with neither, the demo that `make up` runs in this checkout. A key
given as an option can be read by other users of the machine in the list of processes: prefer the variable.
"""

import functools
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from admin.cli.fault import CommandError

#: What `make up` leaves for commands in another terminal, for its user's eyes only.
LOCAL_ENV = Path(__file__).resolve().parents[2] / ".local" / "env"


def with_api(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options --url and --key, and pass it the client as `api`."""

    @click.option("--url", envvar="TIDINGS_URL", metavar="URL", help="The installation. Better: TIDINGS_URL.")
    @click.option("--key", envvar="TIDINGS_API_KEY", metavar="KEY", help="API key. Better: TIDINGS_API_KEY.")
    @functools.wraps(command)
    def connected(*args: Any, url: str | None, key: str | None, **kwargs: Any) -> Any:
        from admin.cli.api_client import ApiClient

        if not url and not key:
            local = local_environment()
            url, key = local.get("TIDINGS_URL"), local.get("TIDINGS_API_KEY")
        if not url or not key:
            missing = " and ".join(
                name for name, value in (("TIDINGS_URL", url), ("TIDINGS_API_KEY", key)) if not value
            )
            raise CommandError(f"set {missing}, or run `make up` in this checkout and use its demo")
        return command(*args, api=ApiClient(url, key), **kwargs)

    return connected


def local_environment() -> dict[str, str]:
    """The variables that `make up` left in this checkout; empty if it never ran."""
    try:
        words = shlex.split(LOCAL_ENV.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return dict(word.split("=", 1) for word in words if "=" in word)

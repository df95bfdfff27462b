"""`tidings inbox`: the link that opens the sandbox inbox in a browser."""

import click

from admin.cli.connection import local_environment
from admin.cli.fault import CommandError
from admin.cli.screen import say
from admin.cli.stores import read_settings


@click.command()
@click.option("--url", envvar="TIDINGS_URL", metavar="URL", help="Where the web process is; default: PUBLIC_URL.")
def inbox(url: str | None) -> None:
    """Print a link that opens the sandbox inbox for twelve hours. Whoever has it can read the messages."""
    from admin.monitoring.inbox_pass import link_to_inbox

    settings = read_settings(or_local=True)
    if settings.secret_key is None:
        raise CommandError("set SECRET_KEY, the same as the web process has: the link is signed with it")
    base = url or settings.public_url or local_environment().get("TIDINGS_URL")
    if not base:
        raise CommandError("say where the web process is: --url, TIDINGS_URL or PUBLIC_URL")
    say(link_to_inbox(base, settings.secret_key.get_secret_value()))

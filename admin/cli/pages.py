"""`tidings admin link`: a one-time link that signs a browser in to the pages."""

import click

from admin.cli.connection import local_environment
from admin.cli.fault import CommandError
from admin.cli.operator import as_operator
from admin.cli.screen import say
from admin.cli.stores import ledger_transaction, read_settings


@click.group()
def admin() -> None:
    """The pages for operators."""


@admin.command()
@click.option("--url", envvar="TIDINGS_URL", metavar="URL", help="Where the web process is; default: PUBLIC_URL.")
@as_operator
def link(url: str | None, operator: str) -> None:
    """Print a link that signs one browser in, once, within fifteen minutes; it may do everything."""
    from admin.monitoring.sign_in.link import new_link
    from admin.monitoring.sign_in.ways import ways_in

    settings = read_settings(or_local=True)
    why_not = ways_in(settings).why_no_link
    if settings.secret_key is None or why_not:
        raise CommandError(f"links open nothing with these settings: {why_not}")
    base = url or settings.public_url or local_environment().get("TIDINGS_URL")
    if not base:
        raise CommandError("say where the web process is: --url, TIDINGS_URL or PUBLIC_URL")
    with ledger_transaction() as connection:
        made = new_link(connection, base, settings.secret_key.get_secret_value(), operator=operator)
    say(made)

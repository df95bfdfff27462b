"""`tidings release`, `tidings config` and `tidings docs`: what an installation needs before it serves."""

import logging
from pathlib import Path

import click

from admin.cli.fault import CommandError
from admin.cli.screen import say
from admin.cli.stores import ledger_transaction, read_settings

_log = logging.getLogger("release")
_CHECKOUT = Path(__file__).resolve().parents[2]


@click.command()
def release() -> None:
    """Bring the database to the newest schema. Safe to run again, and by several at once."""
    from sqlalchemy.exc import OperationalError

    from shared.ledger.migrate import upgrade
    from shared.ledger.pools import demand
    from shared.log import configure

    settings = read_settings()
    # A process of the Procfile: whoever collects the others' lines by LOG_FORMAT reads these too.
    configure(settings, process="release")
    try:
        upgrade(settings.database_url.get_secret_value())
    except OperationalError as error:
        _log.error("the database could not be migrated: %s", str(error.orig).splitlines()[0])
        raise SystemExit(1) from None
    _log.info("The database has the newest schema.")
    with ledger_transaction() as connection:
        needed = demand(connection, settings)
    if not needed.fits:
        _log.warning(
            "The fleet (%s) may open %d connections, Postgres gives %d. "
            "Lower DB_POOL_SIZE or FLEET, or raise max_connections.",
            settings.fleet, needed.most, needed.limit,
        )  # fmt: skip


@click.command()
def config() -> None:
    """
    Check the settings and print them, secrets hidden, and where live messages go with them.

    Exit code 1 and every fault if they are not valid. A provider that lacks settings is a warning.
    """
    from admin.cli.configuration_page import default_of, value_of
    from admin.live_route import live_routes
    from shared.settings import Settings

    settings = read_settings()
    for name, field in Settings.model_fields.items():
        value = value_of(getattr(settings, name))
        changed = "" if value == default_of(field) else "   (set)"
        say(f"{name.upper()}={value}{changed}")
    say()
    for route in live_routes(settings):
        say(f"{route.words}.")
        if route.warning:
            say(f"Warning: {route.warning}.", err=True)


@click.command(hidden=True)
@click.option("--check", is_flag=True, help="Write nothing; exit code 1 if a page differs from the code.")
def docs(check: bool) -> None:  # noqa: FBT001  # click passes by keyword
    """Write the pages of docs/ that are made from code."""
    stale = []
    for path, text in generated_pages().items():
        page = _CHECKOUT / path
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            stale.append(path)
            if not check:
                page.write_text(text, encoding="utf-8")
    if check and stale:
        raise CommandError(f"not as the code makes them: {', '.join(stale)}; run `tidings docs`")
    say(f"Written: {', '.join(stale)}" if stale else "All pages are as the code makes them.")


def generated_pages() -> dict[str, str]:
    """Path in the checkout → text, for every page that is made from code."""
    from admin.cli.alert_rules_page import alert_rules_page
    from admin.cli.configuration_page import configuration_page
    from admin.cli.grafana_page import grafana_page
    from shared.coordination.keys import as_markdown

    return {
        "docs/alerts/tidings.rules.yml": alert_rules_page(),
        "docs/configuration.md": configuration_page(),
        "docs/grafana/tidings.json": grafana_page(),
        "docs/redis-keys.md": as_markdown(),
    }

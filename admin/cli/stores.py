"""The ledger as the commands for operators use it: directly, with the settings of the processes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from admin.cli.fault import CommandError

if TYPE_CHECKING:
    from shared.ledger.db import Connection
    from shared.settings import Settings


def read_settings() -> "Settings":
    """
    Read the environment, as every process does.

    Raises: CommandError listing each fault.
    """
    from shared.settings import SettingsError, load

    try:
        return load()
    except SettingsError as error:
        raise CommandError(str(error)) from None


@contextmanager
def ledger_transaction() -> Iterator["Connection"]:
    """
    Lend a connection to DATABASE_URL inside one transaction.

    Raises: CommandError when the ledger is away or was never migrated.
    """
    import psycopg

    from shared.ledger.db import conninfo

    url = read_settings().database_url.get_secret_value()
    try:
        with psycopg.connect(conninfo(url), connect_timeout=5, application_name="tidings command") as connection:
            yield connection
    except psycopg.errors.UndefinedTable:
        raise CommandError("the database has no tables yet: run `tidings release` first") from None
    except psycopg.OperationalError as error:
        raise CommandError(f"the database does not answer: {str(error).splitlines()[0]}") from None

"""The ledger as the commands for operators use it: directly, with the settings of the processes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from admin.cli.connection import LOCAL_ENV
from admin.cli.fault import CommandError

if TYPE_CHECKING:
    from shared.ledger.db import Connection
    from shared.settings import Settings


def read_settings(*, or_local: bool = False) -> "Settings":
    """
    Read the environment, as every process does.

    `or_local`: where it names no store at all, take what `make up` left in this checkout.

    Raises: CommandError listing each fault.
    """
    from shared.settings import SettingsError, load

    try:
        return load()
    except SettingsError as error:
        names_no_store = all(f"{name}: is not set" in str(error) for name in ("DATABASE_URL", "REDIS_URL"))
        if not (or_local and names_no_store and LOCAL_ENV.exists()):
            raise CommandError(str(error)) from None
    try:
        return load(_env_file=LOCAL_ENV)
    except SettingsError as error:
        raise CommandError(f"{LOCAL_ENV}: {error}") from None


@contextmanager
def ledger_transaction() -> Iterator["Connection"]:
    """
    Lend a connection to DATABASE_URL inside one transaction.

    Raises: CommandError when the ledger is away or was never migrated.
    """
    import psycopg

    from shared.ledger.db import conninfo

    url = read_settings(or_local=True).database_url.get_secret_value()
    try:
        with psycopg.connect(conninfo(url), connect_timeout=5, application_name="tidings command") as connection:
            yield connection
    except psycopg.errors.UndefinedTable:
        raise CommandError("the database has no tables yet: run `tidings release` first") from None
    except psycopg.OperationalError as error:
        raise CommandError(f"the database does not answer: {str(error).splitlines()[0]}") from None

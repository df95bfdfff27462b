"""A ledger whose clock is not this machine's: for the rules that must hold whichever of the two is wrong."""

import psycopg
from psycopg import sql


class LedgerClock:
    """
    Lets sessions of a database that begin from now on have a clock of their own, at first off by `off_by`.

    Before Postgres' own `now()` they find one that adds an interval; `set` changes it for all of them at once.
    """

    def __init__(self, database_url: str, *, off_by: str = "0") -> None:
        self._url = database_url
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute("CREATE SCHEMA clock")
            connection.execute("CREATE TABLE clock.off (by interval NOT NULL)")
            connection.execute("INSERT INTO clock.off VALUES (%s)", [off_by])
            connection.execute(
                "CREATE FUNCTION clock.now() RETURNS timestamptz LANGUAGE sql STABLE"
                " AS 'SELECT pg_catalog.now() + by FROM clock.off'"
            )
            connection.execute(
                sql.SQL("ALTER DATABASE {} SET search_path = clock, public, pg_catalog").format(
                    sql.Identifier(connection.info.dbname)
                )
            )

    def set(self, *, off_by: str) -> None:
        """Put the clock forward or back."""
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute("UPDATE clock.off SET by = %s", [off_by])

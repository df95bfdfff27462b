"""The two stores of a local run: embedded servers, or those named by DATABASE_URL and REDIS_URL."""

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from admin.local.console import Console
from admin.local.given import check_database, check_redis
from admin.local.place import SetupError, claim, make_private, server_account
from admin.local.postgres import Postgres
from admin.local.tether import Tether
from admin.local.valkey import Valkey


class Stores(NamedTuple):
    """The addresses of the stores, and the servers that are ours to keep running."""

    database_url: str
    redis_url: str
    embedded: "tuple[Postgres | Valkey, ...]"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """
    Hold a checkout's data folder for this process alone, until it ends in whatever way.

    Raises:
        SetupError: another one holds it; the text names it.
    """
    claim(folder)  # its mode is left alone: a running server may need it as it is
    with (folder / "lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise SetupError(f"it runs already for this checkout (process {holder}): end that one first") from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


@contextmanager
def running(folder: Path, *, environment: Mapping[str, str], tether: Tether, console: Console) -> Iterator[Stores]:
    """
    Start what is not given by the environment, and stop it afterwards, Redis before Postgres.

    Raises:
        SetupError: a given one does not answer, and nothing was started; or one of ours did not start.
    """
    given_database, given_redis = environment.get("DATABASE_URL"), environment.get("REDIS_URL")
    if given_database:
        check_database(given_database)
    if given_redis:
        check_redis(given_redis)
    account = server_account() if not (given_database and given_redis) else None
    real = make_private(folder, account)
    postgres = None if given_database else Postgres(real, tether=tether, account=account)
    valkey = None if given_redis else Valkey(real, tether=tether, account=account)
    embedded = tuple(server for server in (postgres, valkey) if server)
    try:
        for server, variable in ((postgres, "DATABASE_URL"), (valkey, "REDIS_URL")):
            if server is None:
                console.step(f"using the server that {variable} names")
                continue
            console.step(f"starting the embedded {type(server).__name__}, its data in {real}")
            server.start()
        yield Stores(
            given_database or (postgres.url if postgres else ""),
            given_redis or (valkey.url if valkey else ""),
            embedded,
        )
    finally:
        for server in reversed(embedded):
            if server.process:
                console.step(f"stopping the embedded {type(server).__name__}")
                server.stop()

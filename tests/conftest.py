"""
Fixtures on real servers. A test that asks for one gets it or fails: nothing is skipped for want of a server.

TEST_DATABASE_URL and TEST_REDIS_URL name servers to use instead of the embedded ones: the first must be allowed to
create databases, the second's database is emptied.
"""

import os
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest
import redis

from admin.local.tether import Tether
from shared.ledger.db import Ledger
from shared.ledger.migrate import upgrade
from shared.settings import Settings
from tests.support.processes import ProcessStarter
from tests.support.servers import postgres_server, redis_server, temporary_database

#: On a busy machine neither a slow example nor slow data says anything of the code. Each run draws others.
hypothesis.settings.register_profile(
    "tidings",
    hypothesis.settings(),
    deadline=None,
    max_examples=40,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("tidings")

_NAMES = {name.upper() for name in Settings.model_fields} | {"PORT", "UP_PORT", "FORCE_COLOR", "NO_COLOR"}
STARTERS = pytest.StashKey[ProcessStarter]()


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the person who runs the tests reaches them."""
    for name in list(os.environ):  # noqa: TID251
        if name.upper() in _NAMES or name.startswith("PG"):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def tether() -> Iterator[Tether]:
    """Starts programs that end with this test run, even when it is killed."""
    tether = Tether()
    yield tether
    tether.close()


@pytest.fixture(scope="session")
def postgres_url(tether: Tether) -> Iterator[str]:
    """A Postgres server where databases can be created."""
    with postgres_server(os.environ.get("TEST_DATABASE_URL"), tether) as url:  # noqa: TID251
        yield url


@pytest.fixture(scope="session")
def redis_server_url(tether: Tether) -> Iterator[str]:
    """A Redis server with a database for the tests."""
    with redis_server(os.environ.get("TEST_REDIS_URL"), tether) as url:  # noqa: TID251
        yield url


@pytest.fixture(scope="session")
def migrated_template(postgres_url: str) -> Iterator[str]:
    """A database with the newest schema, never used itself: `database_url` copies it."""
    with temporary_database(postgres_url) as url:
        upgrade(url)
        yield url


@pytest.fixture
def empty_database_url(postgres_url: str) -> Iterator[str]:
    """A database of this test without a schema."""
    with temporary_database(postgres_url) as url:
        yield url


@pytest.fixture
def database_url(postgres_url: str, migrated_template: str) -> Iterator[str]:
    """A database of this test with the newest schema and no rows."""
    with temporary_database(postgres_url, template=migrated_template) as url:
        yield url


@pytest.fixture
def ledger(database_url: str) -> Iterator[Ledger]:
    """The pool over this test's database."""
    pool = Ledger(database_url, size=8, name="tests")
    pool.open()
    yield pool
    pool.close()


@pytest.fixture
def redis_url(redis_server_url: str) -> str:
    """An empty Redis database."""
    with redis.Redis.from_url(redis_server_url) as client:
        client.flushdb()
    return redis_server_url


@pytest.fixture
def process(request: pytest.FixtureRequest, tether: Tether, tmp_path: Path) -> Iterator[ProcessStarter]:
    """
    Start the project's processes: `process(["python", "-m", "workers.clock"], env={...}, ready="started")`.

    DATABASE_URL and REDIS_URL are this test's unless given. All are killed at its end; a failure shows their output.
    """

    def stores() -> dict[str, str]:
        return {
            "DATABASE_URL": request.getfixturevalue("database_url"),
            "REDIS_URL": request.getfixturevalue("redis_url"),
        }

    starter = ProcessStarter(tether, tmp_path, stores)
    request.node.stash[STARTERS] = starter
    yield starter
    starter.end_all()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the processes of a failed test wrote."""
    report = yield
    starter = item.stash.get(STARTERS, None)
    if report.failed and starter is not None:
        for running in starter.started:
            report.sections.append((f"output of {running.name}", running.output()[-20_000:]))
    return report

import logging

import pytest

from shared.ledger import pools
from shared.ledger.db import Ledger
from shared.settings import Settings, load
from tests.support.processes import CHECKOUT


def settings(database_url: str, **more: object) -> Settings:
    return load(database_url=database_url, redis_url="redis://redis.example.com", **more)


def test_the_default_fleet_fits_an_ordinary_server(
    ledger: Ledger, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with ledger.autocommit() as connection:
        needed = pools.demand(connection, settings(database_url))
        pools.warn_if_short(connection, settings(database_url))
    assert needed.by_process == {
        "web": 14, "worker_ingest": 8, "worker_send": 8, "worker_bulk": 8, "worker_ops": 8, "clock": 1,
    }  # fmt: skip
    assert needed.fits
    assert caplog.records == []
    page = (CHECKOUT / "docs/deploy.md").read_text()
    assert f" = {sum(needed.by_process.values())} connections" in page


def test_a_fleet_that_is_too_big_is_warned_about_with_the_numbers(
    ledger: Ledger, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    big = settings(database_url, fleet="web=2 worker_bulk=40 clock=1", web_workers=2, db_pool_size=8)
    with ledger.autocommit() as connection, caplog.at_level(logging.WARNING):
        pools.warn_if_short(connection, big)
        limit = pools.demand(connection, big).limit
    [record] = caplog.records
    assert record.msg == "postgres_connections_short"
    assert (record.__dict__["needed"], record.__dict__["limit"]) == (2 * 2 * (8 + 6) + 320 + 1 + 5, limit)

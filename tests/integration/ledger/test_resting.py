"""A pool that leaves a server alone which did not answer, and does not take a busy pool for such a server."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from psycopg_pool import PoolTimeout

from shared.ledger import resting
from shared.ledger.resting import RestingLedger

Open = Callable[[str], RestingLedger]


@pytest.fixture
def open_pool() -> Iterator[Open]:
    with ExitStack() as ends:

        def open_pool(url: str) -> RestingLedger:
            pool = RestingLedger(url, size=1, name="tests", patience_s=0.2)
            pool.open()
            ends.callback(pool.close)
            return pool

        yield open_pool


def test_once_nobody_answered_the_next_caller_is_told_without_asking(open_pool: Open) -> None:
    pool = open_pool("postgresql://127.0.0.1:1/none")
    with pytest.raises(PoolTimeout, match="sec"), pool.transaction():
        pass
    assert pool.is_resting
    for ask in (pool.refuse_while_away, lambda: pool.transaction().__enter__()):
        with pytest.raises(PoolTimeout, match="not asked"):
            ask()
    with pytest.raises(PoolTimeout, match="sec"):
        pool.ask()


def test_after_its_rest_one_caller_asks_for_all(open_pool: Open) -> None:
    pool = open_pool("postgresql://127.0.0.1:1/none")
    with pytest.raises(PoolTimeout), pool.transaction():
        pass
    assert pool._ask_at is not None
    pool._ask_at -= resting.REST_S
    assert not pool.is_resting
    with pytest.raises(PoolTimeout, match="sec"), pool.transaction():
        pass
    assert pool.is_resting


def test_an_answer_ends_the_rest(open_pool: Open, database_url: str) -> None:
    pool = open_pool(database_url)
    pool._ask_at = float("inf")
    with pytest.raises(PoolTimeout, match="not asked"), pool.transaction():
        pass
    pool.ask()
    with pool.transaction() as connection:
        connection.execute("SELECT 1")


def test_a_pool_whose_connections_are_all_lent_says_nothing_of_the_server(open_pool: Open, database_url: str) -> None:
    pool = open_pool(database_url)
    with pool.transaction():
        with pytest.raises(PoolTimeout, match="sec"), pool.transaction():
            pass
        assert not pool.is_resting
    with pool.transaction() as connection:
        connection.execute("SELECT 1")

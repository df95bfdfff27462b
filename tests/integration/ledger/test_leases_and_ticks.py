"""Leases of worker processes and ticks of clocks: who has them, and who has them no more."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from shared.ledger import periodic, workers
from shared.ledger.clock import ledger_now
from shared.ledger.db import Ledger
from tests.integration.ledger.hand import Hand
from tests.support.factories import make_send
from tests.support.ledger_clock import LedgerClock
from tests.support.ledger_rows import scalar


def test_a_lease_lasts_as_long_as_it_was_asked_for(ledger: Ledger, hand: Hand) -> None:
    hand.register(lease_s=42)
    assert 40 < scalar(ledger, "SELECT extract(epoch FROM lease_until - now())::float8 FROM worker") <= 42


def test_a_living_process_renews_and_one_whose_lease_ran_out_cannot(ledger: Ledger, hand: Hand) -> None:
    hand.register(lease_s=10)
    with ledger.autocommit() as connection:
        assert workers.renew(connection, worker=hand.worker, lease_s=60)
        hand.die()
        assert not workers.renew(connection, worker=hand.worker, lease_s=60)
        assert not workers.renew(connection, worker=uuid4(), lease_s=60)


def test_a_clean_exit_leaves_no_row(ledger: Ledger, hand: Hand) -> None:
    hand.register()
    with ledger.autocommit() as connection:
        workers.remove(connection, worker=hand.worker)
    assert scalar(ledger, "SELECT count(*) FROM worker") == 0


def test_processes_dead_for_a_day_are_forgotten_unless_something_still_names_them(ledger: Ledger) -> None:
    send = make_send(ledger)
    holder, gone, recent, alive = (Hand(ledger).register() for _ in range(4))
    holder.lease(send)
    with ledger.autocommit() as connection:
        connection.execute(
            "UPDATE worker SET lease_until = now() - interval '25 hours' WHERE id = ANY (%s)",
            [[holder.worker, gone.worker]],
        )
        connection.execute("UPDATE worker SET lease_until = now() - interval '23 hours' WHERE id = %s", [recent.worker])
        assert workers.forget_dead(connection) == 1
        left = {row[0] for row in connection.execute("SELECT id FROM worker")}
    assert left == {holder.worker, recent.worker, alive.worker}


def claim(ledger: Ledger, slot: int, *, name: str = "due_work", interval_ms: int = 2_000) -> int | None:
    with ledger.autocommit() as connection:
        return periodic.claim_tick(connection, name=name, slot=slot, interval_ms=interval_ms)


def now_ms(ledger: Ledger) -> int:
    """By the ledger's clock."""
    with ledger.autocommit() as connection:
        return int(ledger_now(connection).timestamp() * 1000)


def test_of_several_clocks_one_gets_each_tick(ledger: Ledger) -> None:
    began = now_ms(ledger)

    def clock(_: int) -> list[int]:
        ticks = range(began - 29, began + 1)
        return [slot for slot in ticks if claim(ledger, slot, interval_ms=3_600_000) is not None]

    with ThreadPoolExecutor(6) as pool:
        claimed = sorted(slot for slots in pool.map(clock, range(6)) for slot in slots)
    assert len(claimed) == len(set(claimed))
    assert claimed[-1] == began


def test_a_tick_older_than_the_newest_is_not_given_and_jobs_do_not_share_ticks(ledger: Ledger) -> None:
    now, hour = now_ms(ledger), 3_600_000
    assert claim(ledger, now, interval_ms=hour) == now
    assert claim(ledger, now, interval_ms=hour) is None
    assert claim(ledger, now - 1, interval_ms=hour) is None
    assert claim(ledger, now - 1, name="housekeeping", interval_ms=hour) == now - 1
    assert claim(ledger, now + 2, interval_ms=hour) == now + 2


def test_clocks_that_differ_by_less_than_a_tick_run_each_tick_once(ledger: Ledger) -> None:
    now, interval = now_ms(ledger), 60_000
    tick = now - now % interval
    assert claim(ledger, tick + interval, interval_ms=interval) == tick + interval  # early, by a clock that is ahead
    assert claim(ledger, tick, interval_ms=interval) is None
    assert claim(ledger, tick + interval, interval_ms=interval) is None


@pytest.mark.parametrize("wrong_by_ms", [3_600_000, -3_600_000])
def test_a_clock_that_is_an_hour_wrong_gets_the_ticks_of_the_ledgers_time_and_takes_none_twice(
    ledger: Ledger, wrong_by_ms: int
) -> None:
    interval = 600_000  # long, so that no tick begins within this test but by a rare chance
    now = now_ms(ledger)
    tick = now - now % interval
    assert claim(ledger, tick + wrong_by_ms, interval_ms=interval) in (tick, tick + interval)
    assert claim(ledger, tick + wrong_by_ms, interval_ms=interval) is None
    assert claim(ledger, tick, interval_ms=interval) is None
    assert claim(ledger, tick + wrong_by_ms, interval_ms=20) is not None


@pytest.fixture
def own_clock(database_url: str) -> Iterator[tuple[Ledger, LedgerClock]]:
    clock = LedgerClock(database_url)
    pool = Ledger(database_url, size=2, name="own clock")
    pool.open()
    yield pool, clock
    pool.close()


def test_ticks_go_on_when_the_ledgers_clock_goes_back_and_each_is_run_once(
    own_clock: tuple[Ledger, LedgerClock],
) -> None:
    ledger, clock = own_clock
    hour, interval = 3_600_000, 600_000
    before = now_ms(ledger)
    assert claim(ledger, before, interval_ms=interval) == before
    clock.set(off_by="-1 hour")
    assert claim(ledger, before - hour, interval_ms=interval) == before - hour
    assert claim(ledger, before - hour, interval_ms=interval) is None
    clock.set(off_by="0")
    assert claim(ledger, before + 2_000, interval_ms=interval) == before + 2_000


def test_a_clock_process_is_given_ticks_again_when_its_ledger_goes_back_an_hour(
    ledger: Ledger, own_clock: tuple[Ledger, LedgerClock]
) -> None:
    theirs, clock = own_clock
    interval = 600_000  # long, so that no tick begins within this test but by a rare chance
    before = now_ms(theirs)
    assert claim(theirs, before, interval_ms=interval) is not None
    clock.set(off_by="-1 hour")  # and this machine's clock stays as it is
    assert claim(theirs, before + 2_000, interval_ms=interval) is not None
    assert claim(theirs, before + 2_000, interval_ms=interval) is None


def test_a_lease_given_before_the_ledgers_clock_went_back_ends_in_time(
    own_clock: tuple[Ledger, LedgerClock],
) -> None:
    ledger, clock = own_clock
    dead, alive = Hand(ledger).register(lease_s=15), Hand(ledger).register(lease_s=15)
    clock.set(off_by="-1 hour")
    with ledger.autocommit() as connection:
        assert workers.renew(connection, worker=alive.worker, lease_s=15)
        assert workers.shorten_leases(connection) == 1
        left = dict(connection.execute("SELECT id, extract(epoch FROM lease_until - now())::float8 FROM worker"))
        assert workers.shorten_leases(connection) == 0
    assert left[alive.worker] <= 15
    assert 290 < left[dead.worker] <= 300

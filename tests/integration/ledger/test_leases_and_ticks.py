"""Leases of worker processes and ticks of clocks: who has them, and who has them no more."""

from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

from shared.ledger import periodic, workers
from shared.ledger.db import Ledger
from tests.integration.ledger.hand import Hand
from tests.support.factories import make_send
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


def test_of_several_clocks_one_gets_each_tick(ledger: Ledger) -> None:
    def clock(_: int) -> list[int]:
        with ledger.autocommit() as connection:
            return [slot for slot in range(100, 130) if periodic.claim_tick(connection, name="due_work", slot=slot)]

    with ThreadPoolExecutor(6) as pool:
        claimed = sorted(slot for slots in pool.map(clock, range(6)) for slot in slots)
    assert len(claimed) == len(set(claimed))
    assert claimed[-1] == 129


def test_a_tick_older_than_the_newest_is_not_given_and_jobs_do_not_share_ticks(ledger: Ledger) -> None:
    with ledger.autocommit() as connection:
        assert periodic.claim_tick(connection, name="due_work", slot=7)
        assert not periodic.claim_tick(connection, name="due_work", slot=7)
        assert not periodic.claim_tick(connection, name="due_work", slot=6)
        assert periodic.claim_tick(connection, name="housekeeping", slot=6)
        assert periodic.claim_tick(connection, name="due_work", slot=9)

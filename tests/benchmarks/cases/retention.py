"""Retention of 1,000,000 deliveries with a send beside it, and of 2,000,000 by a worker that is killed midway."""

import threading
import time

from shared.domain.states import SendStatus
from shared.ledger import retention
from shared.ledger.db import Ledger
from tests.benchmarks.accept import submission
from tests.benchmarks.bench import Bench, Line, goal
from tests.benchmarks.sends import all_of, median_of, run_send
from tests.benchmarks.stage import ALL, Stage, stage, worker_runtime
from tests.support.factories import make_send
from tests.support.ledger_rows import put_rows, recount, scalar
from tests.support.waiting import wait_until
from workers.actors.retention import run_retention

#: Rows per batch of the sends that are to be forgotten: the usual one.
_BATCH = 25
#: Deliveries of each of them, as large as they get: 40,000 batches.
_OF_A_SEND = 1_000_000
#: s; a run that is silent for 120 s is gone on with at the next tick, which comes every 60 s.
_GOES_ON_S = 200.0


def retention_1m(bench: Bench) -> Line:
    """Finished sends of 1,000,000 with their attempts go, while 20,000 are sent; the pace alone is measured first."""
    old, young = bench.size(1_000_000, 20_000), bench.size(20_000, 2_000)

    def run() -> Line:
        with stage(bench.servers, names=()) as set_up:
            _finished_sends(set_up.ledger, old)
            set_up.start(ALL)
            run_send(set_up, submission(1_000), count=1_000)
            alone = [run_send(set_up, submission(young), count=young) for _ in range(2)]
            return _forget(set_up, old, young, max(float(str(each["per_s"])) for each in alone))

    runs = bench.repeat("retention_1m", run)
    medians = {name: median_of(runs, name) for name in runs[0]}
    return {
        "deliveries": old,
        **medians,
        "goals": {
            "seconds": goal(medians["seconds"], runs=all_of(runs, "seconds"), at_most=300),
            "longest transaction, milliseconds": goal(
                medians["longest_ms"], runs=all_of(runs, "longest_ms"), at_most=250
            ),
            "share of the pace of sends kept": goal(medians["share"], runs=all_of(runs, "share"), at_least=0.8),
        },
        "runs": runs,
    }


def retention_killed(bench: Bench) -> Line:
    """
    2,000,000 old deliveries and 5,000 of the same age that are to be tried again; SIGKILL when half are gone.

    Everything else as shipped: the statement timeout, the silence after which another worker goes on, the clock.
    """
    old, in_flight = bench.size(2_000_000, 40_000), bench.size(5_000, 500)

    def run() -> Line:
        with stage(bench.servers, names=(), settings={"RETENTION_DAYS": "30"}) as set_up:
            _finished_sends(set_up.ledger, old)
            _in_flight(set_up.ledger, in_flight)
            return _kill(set_up, old, in_flight)

    runs = bench.repeat("retention_killed", run)
    medians = {name: median_of(runs, name) for name in runs[0]}
    goes_on = goal(medians["goes_on_s"], runs=all_of(runs, "goes_on_s"), at_most=_GOES_ON_S)
    return {
        "deliveries": old,
        "in_flight": in_flight,
        **medians,
        "goals": {"seconds until a killed retention goes on": goes_on},
        "runs": runs,
    }


def _kill(set_up: Stage, old: int, in_flight: int) -> Line:
    ledger = set_up.ledger
    set_up.start(["worker_ops"])
    set_up.start(["clock"])
    wait_until(lambda: _removed(ledger) > old // 2, timeout=900, what="half of them to go")
    set_up.processes.pop("worker_ops").kill()
    killed_at, before = time.perf_counter(), _removed(ledger)
    if _is_over(ledger):
        raise AssertionError("it was over before the kill")
    set_up.start(["worker_ops"])
    wait_until(lambda: _removed(ledger) > before, timeout=_GOES_ON_S * 2, what="another worker to go on")
    goes_on_s = time.perf_counter() - killed_at
    wait_until(lambda: _is_over(ledger), timeout=1_800, what="its end")
    left = scalar(ledger, "SELECT count(*) FROM delivery"), scalar(ledger, "SELECT count(*) FROM attempt")
    if _removed(ledger) != old or left != (in_flight, in_flight):
        raise AssertionError(f"{_removed(ledger)} of {old} are counted as removed, {left} are left of {in_flight}")
    return {"goes_on_s": round(goes_on_s, 1)}


def _removed(ledger: Ledger) -> int:
    with ledger.autocommit() as connection:
        run = retention.newest(connection)
    return 0 if run is None else run.removed.get("deliveries", 0)


def _in_flight(ledger: Ledger, count: int) -> None:
    """A send as old as the others whose deliveries all wait for their next try."""
    send = make_send(ledger, count=count, status=SendStatus.SENDING, batch_size=_BATCH, tenant="past")
    put_rows(ledger, send.id, range(1, count + 1), "retrying", due_in="1 day", attempts=1)
    with ledger.autocommit() as connection:
        connection.execute("UPDATE send SET created_at = now() - interval '61 days' WHERE id = %s", [send.id])


def _forget(set_up: Stage, old: int, young: int, alone_per_s: float) -> Line:
    with worker_runtime(set_up.database_url, set_up.servers.redis_url, retention_days=30) as runtime:
        took = [0.0]

        def forget() -> None:
            began = time.perf_counter()
            run_retention(runtime, every_s=0.0, silent_s=0.0)
            while not _is_over(runtime.ledger):
                run_retention(runtime, every_s=0.0, silent_s=0.0)
            took[0] = time.perf_counter() - began

        forgetting = threading.Thread(target=forget)
        forgetting.start()
        beside = []
        while forgetting.is_alive() and len(beside) < 3:
            beside.append(float(str(run_send(set_up, submission(young), count=young)["per_s"])))
        forgetting.join()
        with runtime.ledger.autocommit() as connection:
            run = retention.newest(connection)
    if run is None or run.removed.get("deliveries") != old:
        raise AssertionError(f"not all went: {run}")
    return {
        "seconds": round(took[0], 1),
        "longest_ms": float(run.longest_ms),
        "alone_per_s": alone_per_s,
        "beside_per_s": max(beside),
        "share": round(max(beside) / alone_per_s, 2),
    }


def _is_over(ledger: Ledger) -> bool:
    with ledger.autocommit() as connection:
        run = retention.newest(connection)
    return run is not None and run.ended_at is not None


def _finished_sends(ledger: Ledger, count: int) -> None:
    for first in range(0, count, _OF_A_SEND):
        _finished_send(ledger, min(_OF_A_SEND, count - first))
    with ledger.autocommit() as connection:
        connection.execute("SET statement_timeout = 0")
        connection.execute("VACUUM ANALYZE")


def _finished_send(ledger: Ledger, count: int) -> None:
    send = make_send(ledger, count=count, status=SendStatus.SENDING, batch_size=_BATCH, tenant="past")
    with ledger.transaction() as connection:
        connection.execute("SET LOCAL statement_timeout = 0")
        connection.execute(
            "UPDATE delivery SET status = 'sent', attempt_count = 1, settled_at = now(), first_attempt_at = now(),"
            " last_attempt_at = now() WHERE send_id = %s",
            [send.id],
        )
        connection.execute(
            "INSERT INTO attempt (send_id, row_no, claim_id, epoch, number, channel, provider, outcome, became,"
            " started_at, ended_at) SELECT send_id, row_no, gen_random_uuid(), 0, 1, channel, 'ches', 'accepted',"
            " status, now(), now() FROM delivery WHERE send_id = %s",
            [send.id],
        )
        recount(connection, send.id)
        connection.execute(
            "UPDATE send SET status = 'completed', completed_at = now() - interval '60 days',"
            " created_at = now() - interval '61 days', settled_counts = '{}' WHERE id = %s",
            [send.id],
        )

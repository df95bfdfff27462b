"""A pass of the reconciler over 100,000 stuck deliveries, and how long one person's message takes meanwhile."""

import threading
import time
from uuid import uuid4

import psycopg

from shared.accounts import first_looks_s
from shared.coordination.redis import RedisLink
from shared.domain.ids import delivery_key
from shared.domain.states import SendStatus
from shared.jobs import Jobs, make_broker
from shared.ledger.db import Ledger
from shared.recovery.reconciler import Reconciler
from shared.settings import load
from tests.benchmarks.bench import Bench, Line, goal
from tests.benchmarks.sends import median_of, single, submit
from tests.benchmarks.stage import Stage, stage
from tests.support.factories import make_send
from tests.support.ledger_rows import recount
from tests.support.waiting import wait_until

_TENANTS = ("one", "two", "three")
#: Deliveries of a batch, and of the one send of each small tenant.
_BATCH = 25
#: Deliveries that were in a call when their workers died: eight threads with a window each.
_IN_CALLS = 800


def reconcile_100k(bench: Bench) -> Line:
    """Batches of three tenants and 500 small ones, held by dead workers, some in calls: freed, their chains started."""
    count, small = bench.size(100_000, 9_000), bench.size(500, 20)

    def run() -> Line:
        with stage(bench.servers, names=("web", "worker_ingest", "worker_send")) as set_up:
            return _run(set_up, count, small)

    runs = bench.repeat("reconcile_100k", run)
    medians = {name: median_of(runs, name) for name in runs[0]}
    return {
        "stuck": count,
        "small_tenants": small,
        **medians,
        "goals": {
            "seconds of a pass": goal(medians["pass_s"], runs=[run["pass_s"] for run in runs], at_most=2),
            "seconds of a single send meanwhile": goal(
                medians["single_s"], runs=[run["single_s"] for run in runs], at_most=3
            ),
        },
        "runs": runs,
    }


def _run(set_up: Stage, count: int, small: int) -> Line:
    submit(set_up, single(0))
    wait_until(lambda: set_up.sink.count()["total"] == 1, timeout=30, what="the first single send")
    batches = _stick(set_up.ledger, count, small)
    passing = _Pass(set_up)
    passing.start()
    meanwhile = submit(set_up, single(1))
    passing.join()
    if passing.retried != batches:
        raise AssertionError(f"{passing.retried} of {batches} batches were freed")
    key = str(delivery_key(meanwhile.id, 1, 0))
    wait_until(lambda: key in set_up.sink.arrivals(), timeout=30, what="the single send")
    return {
        "batches": batches,
        "pass_s": round(passing.took_s, 3),
        "single_s": round(set_up.sink.arrivals()[key] - meanwhile.at, 3),
    }


class _Pass(threading.Thread):
    """One pass with the stage's settings."""

    def __init__(self, set_up: Stage) -> None:
        super().__init__(name="pass")
        self._set_up = set_up
        self.retried, self.took_s = 0, 0.0

    def run(self) -> None:
        environment = self._set_up.environment
        settings = load(**{name.lower(): value for name, value in environment.items()})
        link = RedisLink(environment["REDIS_URL"])
        broker = make_broker(environment["REDIS_URL"], namespace=settings.redis_namespace, heartbeat_timeout_ms=20_000)
        reconciler = Reconciler(
            self._set_up.ledger,
            link,
            Jobs(broker),
            settings,
            worker="benchmark",
            first_look_s=first_looks_s(settings),
        )
        begun = time.perf_counter()
        done = reconciler.run_pass()
        self.took_s = time.perf_counter() - begun
        self.retried = 0 if done is None else done.counts["batch"].retried
        broker.close()
        link.close()


def _stick(ledger: Ledger, count: int, small: int) -> int:
    """Sends whose batches a dead worker holds; how many batches."""
    large = (count - small * _BATCH) // len(_TENANTS)
    made = [make_send(ledger, count=large, status=SendStatus.SENDING, tenant=name) for name in _TENANTS]
    made += [
        make_send(ledger, count=_BATCH, status=SendStatus.SENDING, tenant=f"small {number}") for number in range(small)
    ]
    with ledger.transaction() as connection:
        connection.execute(
            "UPDATE delivery SET status = 'sending', claim_id = gen_random_uuid(), provider = 'ches',"
            " last_attempt_at = now() WHERE send_id = %s AND row_no <= %s",
            [made[0].id, _IN_CALLS],
        )
        recount(connection, made[0].id)
        held = connection.execute(
            "UPDATE batch SET holder = %s, chain_no = 0, leased_at = now() WHERE send_id = ANY (%s)",
            [uuid4(), [send.id for send in made]],
        ).rowcount
    with psycopg.connect(ledger.pool.conninfo, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
    return held

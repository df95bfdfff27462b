"""
The clock: claims the tick of each periodic job in Postgres and enqueues it. Any number of clocks is safe.

It does no work of its own. A tick that cannot be enqueued is lost; the next one finds everything it would have.
"""

import logging
import signal
import sys
import time
from dataclasses import dataclass

import redis

from shared import exits, log, settings
from shared.coordination.minute_ring import MinuteRings
from shared.coordination.redis import RedisLink
from shared.jobs import CountsMessages, JobName, Jobs, make_broker
from shared.ledger import periodic, queries
from shared.ledger.db import POSTGRES_AWAY, Ledger
from shared.settings import Settings

_log = logging.getLogger(__name__)
#: Seconds between two looks at the wall clock; half the shortest interval allowed.
_LOOK_S = 0.1
#: Seconds between two looks for what is to be proved; the shortest wait for a look is 5 s.
_PROVE_S = 5.0
#: Seconds between two looks whether a day's retention is due, or was broken off.
_RETENTION_S = 60.0


@dataclass(frozen=True, slots=True)
class Periodic:
    """A job that runs every `interval_s` seconds, aligned to the wall clock."""

    name: JobName
    interval_s: float


def schedule(settings: Settings) -> list[Periodic]:
    """Every periodic job of this configuration."""
    return [
        Periodic(JobName.DUE_WORK, settings.due_work_interval_ms / 1000),
        Periodic(JobName.RECONCILE, settings.delivery_reconcile_interval_ms / 1000),
        Periodic(JobName.PROVE, _PROVE_S),
        Periodic(JobName.HOUSEKEEPING, 60.0),
        Periodic(JobName.DIGEST, settings.digest_interval_ms / 1000),
        Periodic(JobName.RETENTION, _RETENTION_S),
    ]


def slot_of(interval_s: float, *, now_s: float) -> int:
    """
    When the tick of a moment began, in ms since 1970.

    A time and not a number of ticks: with another interval those would start over far below the ones already
    claimed, and the job would never run again.
    """
    now_ms, interval_ms = int(now_s * 1000), round(interval_s * 1000)
    return now_ms - now_ms % interval_ms


class Ticks:
    """Which ticks have begun since the last look, whichever way this machine's clock was moved meanwhile."""

    def __init__(self, jobs_due: list[Periodic]) -> None:
        self._periodic = jobs_due
        self._asked: dict[JobName, int] = {}

    def begun(self, *, now_s: float) -> list[tuple[Periodic, int]]:
        """Each job whose tick is another than at the last look, with that tick."""
        ticks = [(job, slot_of(job.interval_s, now_s=now_s)) for job in self._periodic]
        begun = [(job, slot) for job, slot in ticks if self._asked.get(job.name) != slot]
        self._asked.update((job.name, slot) for job, slot in begun)
        return begun


class Clock:
    """Ticks until told to stop."""

    def __init__(self, ledger: Ledger, jobs: Jobs, jobs_due: list[Periodic]) -> None:
        self._ledger = ledger
        self._jobs = jobs
        self._ticks = Ticks(jobs_due)
        self._stopped = False

    def stop(self, *_signal: object) -> None:
        """End after the tick under way. Takes no lock: the thread that the signal interrupts is the one that runs."""
        self._stopped = True

    def run(self) -> None:
        """Claim and enqueue until stopped; stores that are away are waited for."""
        while not self._stopped:
            time.sleep(_LOOK_S)
            for job, slot in self._ticks.begun(now_s=time.time()):
                self._tick(job, slot)

    def _tick(self, job: Periodic, slot: int) -> None:
        try:
            with self._ledger.autocommit() as connection:
                interval_ms = round(job.interval_s * 1000)
                claimed = periodic.claim_tick(connection, name=job.name.value, slot=slot, interval_ms=interval_ms)
            if claimed is not None:
                self._jobs.periodic(job.name, slot=claimed)
        except (*POSTGRES_AWAY, redis.RedisError) as error:
            _log.warning("tick_lost", extra={"job": job.name.value, "error": type(error).__name__})


def main() -> None:
    """Run the clock process."""
    try:
        loaded = settings.load()
    except settings.SettingsError as error:
        sys.exit(str(error))
    log.configure(loaded, process="clock")
    with exits.reported():
        _run(loaded)


def _run(loaded: Settings) -> None:
    queries.check()
    ledger = Ledger(loaded.database_url.get_secret_value(), size=1, name="tidings clock")
    minutes = MinuteRings(
        RedisLink(loaded.redis_url.get_secret_value()),
        points=loaded.queue_metrics_max_data_points,
        namespace=loaded.redis_namespace,
    )
    broker = make_broker(
        loaded.redis_url.get_secret_value(),
        namespace=loaded.redis_namespace,
        heartbeat_timeout_ms=loaded.worker_heartbeat_timeout_ms,
        middleware=[CountsMessages(minutes.count)],
    )
    ledger.open()  # last: whoever leaves with an open pool waits for its threads
    clock = Clock(ledger, Jobs(broker), schedule(loaded))
    signal.signal(signal.SIGTERM, clock.stop)
    signal.signal(signal.SIGINT, clock.stop)
    _log.info("clock_started")
    clock.run()
    minutes.close()
    ledger.close()


if __name__ == "__main__":
    main()

"""A hundred people with the Overview open on one web process, who look whenever the doorbell rings."""

import json
import math
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

import redis

from shared.coordination.doorbell import INTERVAL_S, Doorbell
from shared.coordination.redis import RedisLink
from shared.ledger.db import Ledger
from shared.ledger.migrate import upgrade
from tests.benchmarks.bench import Bench, Line, goal
from tests.benchmarks.pages_set import fill
from tests.support.processes import ProcessStarter
from tests.support.servers import temporary_database
from tests.support.site import OpenStream, Site

_VIEWERS = 100
_PANELS = "/admin/monitoring/panels?page=overview&have="


@dataclass
class _Viewer:
    """One open page: its stream, and what it fetches by it. `looks`: the milliseconds and snapshot of each answer."""

    site: Site
    looks: list[tuple[float, int]] = field(default_factory=list)
    failed: int = 0
    was_told_the_end: bool = False
    _have: dict[str, str] = field(
        default_factory=lambda: dict.fromkeys(("verdict", "tabs", "channels", "last_hour", "sends", "digests"), "-")
    )

    def watch(self, all_there: threading.Barrier) -> None:
        """Look whenever the stream rings, until it ends."""
        stream = OpenStream(self.site)
        assert stream.status == HTTPStatus.OK
        self._look()
        all_there.wait()
        for line in iter(stream.line, ""):
            if line.startswith('data: {"v"'):
                self._look()
            self.was_told_the_end |= line == "event: bye"
        stream.close()

    def _look(self) -> None:
        have = ",".join(f"{name}:{known}" for name, known in self._have.items())
        began = time.perf_counter()
        try:
            status, text = self.site.get(f"{_PANELS}{have}", timeout=60)
        except OSError:
            status, text = 0, ""
        if status != HTTPStatus.OK:
            self.failed += 1
            return
        found: dict[str, Any] = json.loads(text)
        self._have |= {name: panel["hash"] for name, panel in found["panels"].items()}
        self.looks.append(((time.perf_counter() - began) * 1000, found["v"]))


def viewers_100(bench: Bench) -> Line:
    """What they are answered, the snapshots built for them, and how soon the web process ends under their streams."""
    seconds = bench.size(60, 8)
    with _site(bench) as (site, redis_url):
        viewers = [_Viewer(site) for _ in range(_VIEWERS)]
        all_there = threading.Barrier(_VIEWERS + 1)
        with ThreadPoolExecutor(max_workers=_VIEWERS) as people:
            watching = [people.submit(viewer.watch, all_there) for viewer in viewers]
            all_there.wait()
            took_s = _ring(redis_url, seconds)
            rung = [look for viewer in viewers for look in viewer.looks[1:]]
            failed = sum(viewer.failed for viewer in viewers)
            began = time.monotonic()
            site.process.terminate()
            stop_s = time.monotonic() - began
            for each in watching:
                each.result()
    snapshots = len({version for _, version in rung})
    millis = sorted(ms for ms, _ in rung)
    return {
        "viewers": _VIEWERS,
        "seconds": round(took_s, 1),
        "looks": len(rung),
        "snapshots": snapshots,
        "goals": {
            "looks that failed": goal(failed, at_most=0),
            "snapshots built in two seconds": goal(round(snapshots / (took_s / 2 + 1), 2), at_most=1),
            "viewers told of the end": goal(sum(viewer.was_told_the_end for viewer in viewers), at_least=_VIEWERS),
            "seconds of a stop with all streams open": goal(round(stop_s, 2), at_most=3),
            "milliseconds of a look, 95 %": goal(round(millis[math.ceil(0.95 * len(millis)) - 1], 1)),
        },
    }


def _ring(redis_url: str, seconds: float) -> float:
    """Ring as a busy fleet does, as often as may be; gives the seconds that took."""
    link = RedisLink(redis_url)
    bell = Doorbell(link)
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        bell.ring("channels", "sends", "last_hour")
        time.sleep(INTERVAL_S / 4)
    bell.close()
    link.close()
    return time.monotonic() - began


@contextmanager
def _site(bench: Bench) -> Iterator[tuple[Site, str]]:
    """The web process as it is deployed, over a ledger with fifty sends in progress."""
    redis_url = bench.servers.redis_url
    with temporary_database(bench.servers.postgres_url) as url, redis.Redis.from_url(redis_url) as client:
        upgrade(url)
        client.flushall()
        ledger = Ledger(url, size=2, name="benchmark", statement_s=900)
        ledger.open()
        small, singles = bench.size(2_000, 200), bench.size(10_000, 500)
        fill(ledger, large=bench.size(1_000_000, 20_000), small=small, singles=singles)
        ledger.close()
        stores = {"DATABASE_URL": url, "REDIS_URL": redis_url, "PYTHONWARNINGS": ""}
        starter = ProcessStarter(bench.servers.tether, Path(tempfile.mkdtemp(dir=bench.servers.folder)), lambda: stores)
        try:
            yield Site(starter, url), redis_url
        finally:
            starter.end_all()

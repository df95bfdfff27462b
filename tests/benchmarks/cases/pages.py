"""The pages and the snapshot over a large ledger: milliseconds, in one web process, one request at a time."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from statistics import median

import redis
from flask import Flask

from admin.app import create_app
from admin.extensions import db, installed
from admin.monitoring.snapshot import build
from shared.ledger.db import Ledger
from shared.ledger.migrate import upgrade
from shared.settings import load
from tests.benchmarks.bench import Bench, Line, goal
from tests.benchmarks.machine import say
from tests.benchmarks.pages_set import PagesSet, add_singles, fill
from tests.benchmarks.usage import cpu_s
from tests.support.browser import SECRET_KEY, Browser
from tests.support.servers import temporary_database

_LOOKS = 7

Times = dict[str, dict[str, float]]


def pages_1m(bench: Bench) -> Line:
    """A send to a million half done, 49 others, 100,000 dead letters: pages and snapshot, the latter in a crowd too."""
    large, small = bench.size(1_000_000, 20_000), bench.size(2_000, 200)
    with _app(bench) as (app, ledger):
        made = fill(ledger, large=large, small=small)
        say(f"pages_1m: {made}")
        times = _look(app, made, bench)
        add_singles(ledger, bench.size(10_000, 500))
        build(installed(app), None)
        crowded, *_ = _measure(lambda: build(installed(app), None), bench.servers.roots["postgres"])
    wall = times["wall_ms"]
    slowest = max((name for name in wall if name != "snapshot"), key=lambda name: wall[name])
    return {
        "deliveries": made.deliveries,
        "dead_letters": made.dead,
        **times,
        "slowest_page": slowest,
        "goals": {
            "milliseconds of a snapshot": goal(wall["snapshot"], at_most=150),
            "milliseconds of the slowest page": goal(wall[slowest], at_most=200),
            "milliseconds of a snapshot beside 10,000 single sends": goal(crowded),
        },
    }


def _look(app: Flask, made: PagesSet, bench: Bench) -> Times:
    """By what is looked at: milliseconds on the clock, and of CPU time in this process and in Postgres."""
    browser = Browser(app)
    send = f"/admin/monitoring/sends/{made.large}"
    panels = f"/admin/monitoring/panels?page=send&id={made.large}&have=send_figures:-,send_events:-"
    paths = {
        "overview": "/admin/monitoring",
        "system": "/admin/monitoring/system",
        "failures": "/admin/monitoring/failures",
        "dead letters": "/admin/monitoring/failures/list",
        "sends": "/admin/monitoring/sends",
        "send": send,
        "send, failed": f"{send}?show=failed",
        "send, last page": f"{send}?after={made.deliveries - made.deliveries // 10}&show=waiting",
        "send, none such": f"{send}?show=unsure",
        "panels of a send": panels,
    }
    looks: dict[str, Callable[[], object]] = {"snapshot": lambda: build(installed(app), None)}
    looks |= {name: partial(_open, browser, path) for name, path in paths.items()}
    postgres = bench.servers.roots["postgres"]
    times: Times = {"wall_ms": {}, "web_cpu_ms": {}, "postgres_cpu_ms": {}}
    for name, look in looks.items():
        look()
        measured = _measure(look, postgres)
        for kind, figure in zip(times, measured, strict=True):
            times[kind][name] = figure
    return times


def _open(browser: Browser, path: str) -> None:
    answer = browser.get(path)
    if answer.status_code != HTTPStatus.OK or not answer.data:
        raise AssertionError(f"{path}: {answer.status_code}")


def _measure(look: Callable[[], object], postgres: int) -> tuple[float, float, float]:
    """Median on the clock; means of CPU time, which other work on the machine moves little."""
    wall, own, theirs = [], time.process_time(), cpu_s(postgres)
    for _ in range(_LOOKS):
        began = time.perf_counter()
        look()
        wall.append((time.perf_counter() - began) * 1000)
    own_ms = (time.process_time() - own) * 1000 / _LOOKS
    return round(median(wall), 1), round(own_ms, 1), round((cpu_s(postgres) - theirs) * 1000 / _LOOKS, 1)


@contextmanager
def _app(bench: Bench) -> Iterator[tuple[Flask, Ledger]]:
    with temporary_database(bench.servers.postgres_url) as url, redis.Redis.from_url(bench.servers.redis_url) as client:
        upgrade(url)
        client.flushall()
        ledger = Ledger(url, size=2, name="benchmark", statement_s=900)
        ledger.open()
        app = create_app(
            load(database_url=url, redis_url=bench.servers.redis_url, secret_key=SECRET_KEY, environment="benchmark")
        )
        try:
            yield app, ledger
        finally:
            with app.app_context():
                db.engine.dispose()
            installed(app).close()
            ledger.close()

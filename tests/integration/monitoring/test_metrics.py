"""`/metrics`: the same from every web process, never falling, and nothing of a process that is gone."""

import time
from contextlib import suppress
from signal import SIGKILL
from typing import Any

import pytest
import redis
from flask import Flask
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from admin.extensions import installed
from admin.monitoring.snapshot_cache import SnapshotCache
from admin.monitoring.snapshot_shape import SHAPE
from shared.coordination import keys
from shared.coordination.redis import RedisUnavailable
from shared.domain.states import SendStatus
from shared.ledger import minutes
from shared.ledger.db import Ledger
from tests.integration.monitoring.conftest import MakeApp
from tests.support.factories import make_send
from tests.support.ledger_rows import put_rows, scalar
from tests.support.processes import ProcessStarter
from tests.support.waiting import wait_until

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture
def app(make_app: MakeApp, redis_url: str) -> Flask:
    return make_app(redis_url=redis_url, email_provider="sandbox", sms_provider="sandbox")


def read(app: Flask, **headers: str) -> Samples:
    """Scrape, anew."""
    cache: SnapshotCache = app.extensions["tidings-snapshots"]
    cache.outdate()
    with suppress(RedisUnavailable):
        installed(app).link.pipeline([("DEL", keys.SNAPSHOT_TOTALS.name("tidings", shape=SHAPE))])
    answer = app.test_client().get("/metrics", headers={name.replace("_", "-"): it for name, it in headers.items()})
    assert answer.status_code == 200, answer.text
    return samples_of(answer.text)


def samples_of(text: str) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parse(text)
        for sample in family.samples
    }


def one(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, tuple(sorted(labels.items()))]


def count(ledger: Ledger, minute: str, **counts: int) -> None:
    """What happened in a minute, as the edges write it."""
    names = ", ".join(counts)
    values = ", ".join(str(value) for value in counts.values())
    with ledger.transaction() as connection:
        connection.execute(
            "INSERT INTO minute_count (minute, writer, mode, channel, provider, took, "  # type: ignore[arg-type]
            f"{names}) VALUES (date_trunc('minute', now()) - interval '{minute}', pg_backend_pid(), 'live', 'email',"
            f" 'sandbox', 4, {values})"
        )


def test_what_is_due_equals_the_ledger_s(app: Flask, ledger: Ledger) -> None:
    make_send(ledger, count=30, status=SendStatus.SENDING)
    send = make_send(ledger, count=7, status=SendStatus.SENDING)
    put_rows(ledger, send.id, range(1, 3), "sent")
    samples = read(app)
    due = scalar(ledger, "SELECT count(*) FROM delivery WHERE status = 'owed'")
    assert one(samples, "tidings_due", channel="email", lane="bulk") == due == 35
    assert one(samples, "tidings_due", channel="sms", lane="single") == 0
    assert one(samples, "tidings_up", store="postgres") == 1


def test_counters_are_the_ledger_s_and_do_not_fall_when_minutes_are_folded_or_redis_is_emptied(
    app: Flask, ledger: Ledger, redis_url: str
) -> None:
    before = read(app)
    count(ledger, "26 hours", accepted=5, sent=4, failed=1, calls=5)
    count(ledger, "20 minutes", accepted=3, sent=3, calls=3)
    count(ledger, "0 minutes", accepted=2, sent=1, dead_lettered=1, calls=2, retried=4)
    counted = {key: value for key, value in read(app).items() if key[0].endswith(("_total", "_bucket"))}
    where = {"channel": "email", "provider": "sandbox"}
    assert one(counted, "tidings_deliveries_total", outcome="sent", **where) == 8
    assert one(counted, "tidings_deliveries_total", outcome="dead_lettered", **where) == 1
    assert one(counted, "tidings_attempts_total", **where) == 10
    assert one(counted, "tidings_retries_total", **where) == 4
    assert one(counted, "tidings_delivery_seconds_bucket", le="0.3", **where) == 8
    assert one(counted, "tidings_delivery_seconds_bucket", le="0.2", **where) == 0
    assert one(counted, "tidings_delivery_seconds_bucket", le="+Inf", **where) == 8

    with ledger.autocommit() as connection:
        assert minutes.fold(connection, limit=1_000) > 0
    with redis.Redis.from_url(redis_url) as client:
        client.flushdb()
    after = read(app)
    ledgers = {key: value for key, value in counted.items() if "redis" not in key[0]}
    assert {key: after[key] for key in ledgers} == ledgers
    assert set(before) <= set(after)


def test_two_web_processes_say_the_same(make_app: MakeApp, redis_url: str, ledger: Ledger) -> None:
    make_send(ledger, count=30, status=SendStatus.SENDING, age="3 minutes")
    count(ledger, "0 minutes", sent=9, calls=9)
    settings = {"redis_url": redis_url, "email_provider": "sandbox"}
    first, second = make_app(**settings), make_app(**settings)
    installed(first).link.health()

    def both() -> bool:
        one_side = first.test_client().get("/metrics").text
        other_side = second.test_client().get("/metrics").text
        return one_side == other_side and "tidings_due" in one_side

    wait_until(both, what="both to have the same snapshot")


def test_a_dead_worker_s_gauges_go_and_are_never_doubled(
    app: Flask, process: ProcessStarter, redis_url: str, ledger: Ledger
) -> None:
    def start() -> Any:
        return process(
            ["python", "-m", "workers", "--queues", "email_bulk", "--threads", "3"], ready="ready for action"
        )

    def threads() -> float:
        found = {key: value for key, value in read(app).items() if key[0] == "tidings_worker_threads"}
        return sum(found.values())

    killed, other = start(), start()
    wait_until(lambda: threads() == 6, what="both to beat", timeout=20)
    killed.kill()
    with redis.Redis.from_url(redis_url) as client:
        for worker in client.zrange("tidings:workers", 0, -1):  # whoever lives beats again within 5 s
            client.zadd("tidings:workers", {worker: time.time() * 1000 - 70_000})
    wait_until(lambda: threads() == 3, what="the dead one's threads to go", timeout=20)
    start()
    wait_until(lambda: threads() == 6, what="another in its place", timeout=20)
    other.signal_group(SIGKILL)


def test_what_a_store_told_goes_with_the_store_and_what_it_is_known_for_stays(
    make_app: MakeApp, ledger: Ledger
) -> None:
    count(ledger, "0 minutes", sent=9, calls=9)
    samples = read(make_app(email_provider="sandbox"))
    assert one(samples, "tidings_up", store="redis") == 0
    assert one(samples, "tidings_deliveries_total", channel="email", provider="sandbox", outcome="sent") == 9
    names = {name for name, _ in samples}
    assert not [name for name in names if name.startswith(("tidings_queue", "tidings_worker", "tidings_redis"))]
    assert one(samples, "tidings_warnings", rule="RedisUnreachable") == 1


def test_the_token_is_asked_for_where_there_is_one(make_app: MakeApp, redis_url: str) -> None:
    app = make_app(redis_url=redis_url, metrics_token="a-token-of-sixteen-or-more")
    client = app.test_client()
    assert client.get("/metrics").status_code == 401
    assert client.get("/metrics", headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert read(app, Authorization="Bearer a-token-of-sixteen-or-more")


def test_both_formats_are_read_by_their_own_parser_and_tell_of_nobody(app: Flask, ledger: Ledger) -> None:
    make_send(ledger, count=3, status=SendStatus.SENDING, tenant="Secret Tenant")
    client = app.test_client()
    plain = client.get("/metrics")
    assert plain.content_type.startswith("text/plain")
    asked = "application/openmetrics-text; version=1.0.0"
    modern = client.get("/metrics", headers={"Accept": asked})
    assert modern.content_type.startswith("application/openmetrics-text")
    assert len(list(parse_openmetrics(modern.text))) > 20
    assert "Secret" not in plain.text
    assert "@" not in plain.text
    labels = {name for _, labels in samples_of(plain.text) for name, _ in labels}
    assert labels <= {"channel", "lane", "provider", "outcome", "le", "store", "section", "rule", "queue", "state",
                      "way", "kind", "result", "version"}  # fmt: skip


def test_scraping_often_does_not_build_the_figures_often(app: Flask) -> None:
    client = app.test_client()
    stamps = set()
    for _ in range(20):
        stamps.add(one(samples_of(client.get("/metrics").text), "tidings_snapshot_timestamp_seconds"))
    assert len(stamps) <= 3

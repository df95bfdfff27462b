"""The stream beside the pages of the web process as it is deployed: gunicorn by the Procfile's line."""

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import redis

from shared.coordination.doorbell import Doorbell
from shared.coordination.redis import RedisLink
from tests.support.browser import Browser
from tests.support.idle_proxy import idle_proxy
from tests.support.processes import ProcessStarter
from tests.support.site import OpenStream, Site
from tests.support.waiting import wait_until

MOST = 120
RETRY = re.compile("retry: [2-5][0-9]{3}")


@pytest.fixture
def streams() -> Iterator[Callable[[Site], OpenStream]]:
    opened: list[OpenStream] = []

    def open_stream(site: Site) -> OpenStream:
        opened.append(OpenStream(site))
        return opened[-1]

    yield open_stream
    for stream in opened:
        stream.close()


@pytest.fixture
def site(process: ProcessStarter, database_url: str) -> Site:
    return Site(process, database_url)


def ring(redis_url: str, *panels: str) -> None:
    link = RedisLink(redis_url)
    bell = Doorbell(link)
    bell.ring(*panels)
    bell.close()
    link.close()


def test_a_stream_begins_at_once_and_rings_when_panels_change(site: Site, streams: Any, redis_url: str) -> None:
    stream = streams(site)
    assert stream.status == 200
    assert stream.headers["Cache-Control"] == "no-store"
    assert stream.headers["X-Accel-Buffering"] == "no"
    assert stream.headers["Content-Type"].startswith("text/event-stream")
    assert RETRY.fullmatch(stream.line())

    with redis.Redis.from_url(redis_url) as client:
        wait_until(lambda: client.execute_command("PUBSUB", "NUMSUB", "tidings:doorbell")[1], what="the hub to listen")
    before = time.time() * 1000
    ring(redis_url, "channels", "sends")
    message = json.loads(stream.line().removeprefix("data: "))
    assert message["changed"] == ["channels", "sends"]
    assert before - 5 <= message["v"] <= time.time() * 1000 + 1


def test_full_of_streams_the_process_still_answers_pages_and_turns_more_streams_away(site: Site, streams: Any) -> None:
    for _ in range(MOST):
        assert streams(site).status == 200
    refused = streams(site)
    assert (refused.status, refused.headers["Cache-Control"]) == (204, "no-store")

    def seconds(path: str) -> float:
        started = time.monotonic()
        assert site.get(path)[0] == 200
        return time.monotonic() - started

    took = [seconds("/admin/monitoring") for _ in range(20)]
    assert median(took) < 0.5, took


def test_a_look_at_the_head_of_a_stream_takes_no_place(make_app: Any, redis_url: str) -> None:
    app = make_app(redis_url=redis_url, monitoring_max_streams=1)
    browser = Browser(app)
    for _ in range(3):
        assert browser.client.head("/admin/monitoring/queues/events", buffered=True).status_code == 200


def test_streams_that_browsers_left_are_free_again(
    process: ProcessStarter, streams: Any, database_url: str, redis_url: str
) -> None:
    site = Site(process, database_url, env={"MONITORING_MAX_STREAMS": "3"})
    first = [streams(site) for _ in range(3)]
    assert streams(site).status == 204
    for stream in first:
        stream.close()

    def one_is_free() -> bool:
        ring(redis_url, "channels")  # who left is noticed by writing
        return bool(streams(site).status == 200)

    wait_until(one_is_free, timeout=20, what="a place for a stream")


def test_hundreds_of_streams_that_browsers_left_cost_nothing_once_they_were_pinged(
    process: ProcessStarter, database_url: str, redis_url: str
) -> None:
    """Nothing rings: only pings tell who has left."""
    site = Site(process, database_url, env={"MONITORING_STREAM_PING_MS": "500"})
    with redis.Redis.from_url(redis_url) as client:
        site.snapshot()
        most = held(site, client) + 20  # connections of the pools come and go
        for _ in range(3):
            opened = [OpenStream(site) for _ in range(100)]
            assert [stream.status for stream in opened] == [200] * 100
            assert held(site, client) > most
            for stream in opened:
                stream.close()
            wait_until(lambda: held(site, client) <= most, timeout=30, what=f"no more than {most} held")


def held(site: Site, client: "redis.Redis") -> int:
    """Files and connections that the processes of a site hold open, and theirs in Redis."""
    pids = [site.process.pid, *children(site.process.pid)]
    files = sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in pids)
    return files + len(client.client_list(_type="pubsub"))


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_proxy_that_cuts_silent_connections_leaves_a_stream_alone(process: ProcessStarter, database_url: str) -> None:
    """The shares of a router that cuts after 55 s of silence and a ping every 15 s, in a thirtieth of the time."""
    site = Site(process, database_url, env={"MONITORING_STREAM_PING_MS": "500"})
    with idle_proxy(site.port, idle_s=3.0) as proxy:
        stream = OpenStream(site, port=proxy.port)
        lines = [stream.line() for _ in range(1 + 2 * 8)]
        stream.close()
        assert lines[1:] == ["event: ping", "data: {}"] * 8
        assert proxy.cut == 0


@pytest.mark.parametrize("connection", ["keep-alive", "close"])
def test_a_stop_tells_as_many_streams_as_may_be_and_waits_for_no_browser_to_leave(
    site: Site, streams: Any, connection: str
) -> None:
    """About a second on a machine of its own; a process that waits for its streams takes the 10 s it is given."""
    site.headers["Connection"] = connection
    opened = [streams(site) for _ in range(MOST)]
    assert {stream.status for stream in opened} == {200}
    started = time.monotonic()
    assert site.process.terminate() == 0
    took = time.monotonic() - started
    heard = [list(iter(stream.line, "")) for stream in opened]
    assert [lines[1:] for lines in heard] == [["event: bye", "data: {}"]] * MOST
    assert all(RETRY.fullmatch(lines[0]) for lines in heard)
    assert len({lines[0] for lines in heard}) > 1, "all browsers come back together"
    assert took < 9, took


def test_streams_say_when_redis_hangs_up_and_when_it_is_back(site: Site, streams: Any, redis_url: str) -> None:
    stream = streams(site)
    assert RETRY.fullmatch(stream.line())
    with redis.Redis.from_url(redis_url) as client:
        wait_until(lambda: client.execute_command("PUBSUB", "NUMSUB", "tidings:doorbell")[1], what="the hub to listen")
        client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
    assert stream.line() == "event: deaf"
    assert stream.line() == "data: {}"
    assert stream.line() == "event: hearing"

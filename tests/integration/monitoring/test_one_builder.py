"""One snapshot for the whole fleet, whoever looks."""

import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
import redis

from tests.support.processes import ProcessStarter
from tests.support.site import Site

LOOKED_FOR_S = 7.0


@pytest.fixture
def sites(process: ProcessStarter, database_url: str) -> list[Site]:
    return [Site(process, database_url) for _ in range(2)]


def versions_seen(site: Site) -> list[int]:
    """Look as often as one can."""
    until, seen = time.monotonic() + LOOKED_FOR_S, []
    while time.monotonic() < until:
        seen.append(int(site.snapshot()["v"]))
    return seen


def test_many_viewers_of_two_processes_share_one_snapshot_every_two_seconds(sites: list[Site]) -> None:
    with ThreadPoolExecutor(max_workers=8) as viewers:
        seen = list(viewers.map(versions_seen, sites * 4))
    versions = sorted({version for one in seen for version in one})
    assert len(versions) <= LOOKED_FOR_S / 2 + 2, versions
    assert all(after - before >= 1900 for before, after in pairwise(versions)), versions
    assert len(versions) >= 2
    assert {version for one in seen[::2] for version in one} & {version for one in seen[1::2] for version in one}
    for one in seen:
        assert one == sorted(one), "an older snapshot was shown after a newer one"


def test_an_emptied_redis_costs_one_building(sites: list[Site], redis_url: str) -> None:
    before = sites[0].snapshot()
    with redis.Redis.from_url(redis_url) as client:
        client.flushdb()
    after = sites[1].snapshot()
    assert set(after["sections"]) == set(before["sections"])
    assert after["stores"]["redis"]["status"] == "ok"

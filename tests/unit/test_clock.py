import pytest

from shared.jobs import JobName
from shared.settings import load
from workers.clock import Periodic, schedule, slot_of

NOW_S = 1_796_055_950.163


@pytest.mark.parametrize("interval_s", [0.2, 2.0, 5.0, 7.0, 60.0])
def test_a_tick_is_named_by_when_it_began(interval_s: float) -> None:
    slot = slot_of(interval_s, now_s=NOW_S)
    assert 0 <= NOW_S * 1000 - slot < interval_s * 1000 + 1
    assert slot_of(interval_s, now_s=NOW_S + interval_s) == slot + interval_s * 1000


@pytest.mark.parametrize("interval_s", [0.2, 2.0, 5.0, 60.0])
def test_a_job_runs_on_after_its_interval_was_changed(interval_s: float) -> None:
    claimed = slot_of(2.0, now_s=NOW_S)
    assert slot_of(interval_s, now_s=NOW_S + 2 * interval_s) > claimed


def test_digests_are_dispatched_as_often_as_it_is_set_and_retention_is_looked_at_every_minute() -> None:
    jobs = schedule(
        load(database_url="postgresql://localhost/x", redis_url="redis://localhost/0", digest_interval_ms=120_000)
    )
    assert Periodic(JobName.DIGEST, 120.0) in jobs
    assert Periodic(JobName.RETENTION, 60.0) in jobs

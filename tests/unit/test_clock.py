import pytest

from shared.jobs import JobName
from shared.settings import load
from workers.clock import Periodic, Ticks, schedule, slot_of

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


def test_ticks_go_on_when_this_machines_clock_is_put_back() -> None:
    ticks = Ticks([Periodic(JobName.DUE_WORK, 2.0), Periodic(JobName.RECONCILE, 60.0)])

    def begun(now_s: float) -> list[tuple[JobName, int]]:
        return [(job.name, slot) for job, slot in ticks.begun(now_s=now_s)]

    ahead_s = NOW_S + 3_600
    assert [name for name, _ in begun(ahead_s)] == [JobName.DUE_WORK, JobName.RECONCILE]
    assert begun(ahead_s + 0.1) == []
    assert begun(NOW_S) == [
        (JobName.DUE_WORK, slot_of(2.0, now_s=NOW_S)),
        (JobName.RECONCILE, slot_of(60.0, now_s=NOW_S)),
    ]
    assert begun(NOW_S + 0.1) == []
    assert [name for name, _ in begun(NOW_S + 2)] == [JobName.DUE_WORK]

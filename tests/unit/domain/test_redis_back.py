"""Right after Redis came back no beat is young, and nobody is said to be missing for that."""

from datetime import UTC, datetime, timedelta

import pytest

from shared.domain.health_facts import Facts, Thresholds
from shared.domain.health_findings import no_workers

NOW = datetime(2026, 11, 30, 3, 0, tzinfo=UTC)


@pytest.mark.parametrize(("back_s", "told"), [(None, 1), (15, 0), (16, 1)])
def test_a_missing_worker_is_told_of_once_redis_has_been_back_for_a_beat(back_s: int | None, told: int) -> None:
    late = (NOW - timedelta(seconds=90)).isoformat()
    back_at = None if back_s is None else (NOW - timedelta(seconds=back_s)).isoformat()
    queue = {"queue": "email", "ready": 3, "no_worker_since": late}
    document = {
        "stores": {"redis": {"status": "ok", "since": None, "back_at": back_at}},
        "sections": {
            "workers": {
                "status": "ok",
                "data": {"workers": [{"beat_at": late, "state": "running", "queues": ["email"]}]},
            },
            "queues": {"status": "ok", "data": {"queues": [queue]}},
        },
    }
    assert len(list(no_workers(Facts(document, NOW), Thresholds()))) == told

"""What a worker and a queue are in a word."""

from typing import Any

import pytest

from shared.domain.fleet import Beat, QueueMinutes, QueueWord, WorkerWord, judge_queue, judge_worker, oldest_wait_s
from shared.domain.health_facts import Thresholds

LIMITS = Thresholds()
STEADY = [10] * 10


def beat(**more: Any) -> Beat:
    known = {"beat_age_s": 3.0, "up_s": 900.0, "draining": False, "threads": 2, "busy_ages": [], "idle_ages": [2.0]}
    return Beat(**{**known, **more})


@pytest.mark.parametrize(
    ("said", "waits_s", "word"),
    [
        (beat(), None, "running"),
        (beat(beat_age_s=16), None, "late"),
        (beat(beat_age_s=16, draining=True), None, "late"),
        (beat(beat_age_s=61), None, "gone"),
        (beat(draining=True), None, "shutting down"),
        (beat(idle_ages=[500.0, 500.0]), None, "running"),
        (beat(idle_ages=[500.0, 500.0]), 100.0, "running"),
        (beat(idle_ages=[500.0, 500.0]), 130.0, "not consuming"),
        (beat(idle_ages=[500.0, 90.0]), 130.0, "running"),
        (beat(idle_ages=[], up_s=900), 130.0, "not consuming"),
        (beat(idle_ages=[], up_s=30), 130.0, "running"),
        (beat(busy_ages=[400.0, 400.0], idle_ages=[]), 900.0, "running"),
        (beat(busy_ages=[601.0, 599.0], idle_ages=[]), 900.0, "running"),
        (beat(busy_ages=[601.0, 700.0], idle_ages=[]), None, "not consuming"),
    ],
)
def test_a_worker_s_word(said: Beat, waits_s: float | None, word: WorkerWord) -> None:
    found, why = judge_worker(said, waits_s=waits_s, limits=LIMITS)
    assert found == word
    assert (why is not None) is (word == "not consuming")


@pytest.mark.parametrize(
    ("added", "ended", "now", "word"),
    [
        (STEADY, STEADY, {"ready": 0, "waits_s": None}, "moving"),
        ([0] * 10, [0] * 10, {"ready": 0, "waits_s": None}, "idle"),
        ([0] * 10, [0] * 10, {"ready": 0, "in_flight": 4, "waits_s": None}, "moving"),
        (STEADY, STEADY, {"ready": 5, "waits_s": 1.0, "workers": 0}, "no worker"),
        ([1] * 10, [0] * 10, {"ready": 5, "waits_s": 301.0}, "not moving"),
        ([1] * 10, [0] * 10, {"ready": 5, "waits_s": 299.0}, "moving"),
        ([1] * 10, [0] * 9 + [1], {"ready": 5, "waits_s": 301.0}, "moving"),
        ([20] * 10, STEADY, {"ready": 100, "waits_s": 60.0}, "arriving faster"),
        ([20] * 10, STEADY, {"ready": 3, "waits_s": 60.0}, "moving"),
        ([900] + [9] * 9, STEADY, {"ready": 800, "waits_s": 60.0}, "moving"),
        ([20] * 8, [10] * 8, {"ready": 100, "waits_s": 60.0}, "moving"),
        ([20] * 9 + [10], STEADY, {"ready": 100, "waits_s": 60.0}, "moving"),
    ],
)
def test_a_queue_s_word(added: list[int], ended: list[int], now: dict[str, Any], word: QueueWord) -> None:
    found, growing = judge_queue(QueueMinutes(added, ended), limits=LIMITS, **{"workers": 2, "in_flight": 0, **now})
    assert found == word
    assert growing == (10 if word == "arriving faster" else 0)


def test_a_paused_queue_s_messages_make_nobody_a_zombie() -> None:
    waits = {"email": 900.0, "sms": 5.0}
    assert oldest_wait_s(["email", "sms", "ops"], waits, {}) == 900.0
    assert oldest_wait_s(["email", "sms", "ops"], waits, {"email": 1}) == 5.0
    assert oldest_wait_s(["email"], waits, {"email": 1}) is None

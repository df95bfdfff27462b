"""What a worker and a queue are in a word, for people: from beats and minutes to "not consuming". Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from shared.domain.health_facts import Thresholds
from shared.domain.words import duration

WorkerWord = Literal["running", "shutting down", "late", "gone", "not consuming"]
QueueWord = Literal["moving", "idle", "no worker", "not moving", "arriving faster"]

#: Late becomes gone after so many times the age at which it is late.
_GONE_TIMES = 4
#: Of the minutes in which a queue is said to grow, the share that must have grown: one quiet minute proves nothing.
_GROWING_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class Beat:
    """
    What is known of a worker process. Ages are seconds.

    `busy_ages` are those of its threads that have a message, since they last got anywhere; `idle_ages` of the others.
    """

    beat_age_s: float
    up_s: float
    draining: bool
    threads: int
    busy_ages: Sequence[float]
    idle_ages: Sequence[float]


def judge_worker(beat: Beat, *, waits_s: float | None, limits: Thresholds) -> tuple[WorkerWord, str | None]:
    """
    Say what a worker is, and why where it is not consuming.

    `waits_s`: how long the oldest message has waited on the queues that it consumes and that are not paused; None
    where none waits.
    """
    if beat.beat_age_s > _GONE_TIMES * limits.beat_late_s:
        return "gone", None
    if beat.beat_age_s > limits.beat_late_s:
        return "late", None
    if beat.draining:
        return "shutting down", None
    hung = [age for age in beat.busy_ages if age > limits.worker_hung_s]
    if hung and len(hung) == beat.threads:
        return (
            "not consuming",
            f"each of its {len(hung)} threads has been busy with one message for {duration(min(hung))}",
        )
    if waits_s is not None and waits_s > limits.worker_idle_s and len(beat.busy_ages) < beat.threads:
        still_s = min((*beat.busy_ages, *beat.idle_ages, beat.up_s))
        if still_s > limits.worker_idle_s:
            return (
                "not consuming",
                f"messages have waited for {duration(waits_s)} and it took none for {duration(still_s)}",
            )
    return "running", None


@dataclass(frozen=True, slots=True)
class QueueMinutes:
    """Messages of a queue in full minutes, oldest first: given to it, and finished or failed."""

    added: Sequence[int]
    ended: Sequence[int]


def judge_queue(
    minutes: QueueMinutes, *, ready: int, in_flight: int, waits_s: float | None, workers: int, limits: Thresholds
) -> tuple[QueueWord, int]:
    """
    Say how a queue is, and for how many minutes it has grown.

    `waits_s`: age of the oldest message that waits, None where none does. A burst is no growth: only a queue that got
    more than it ended in nearly each of MONITORING_ARRIVING_FASTER_MINUTES minutes, and still has it, grows.
    """
    if not workers:
        return "no worker", 0
    if ready and waits_s is not None and waits_s >= limits.queue_still_s and not any(minutes.ended[-_still(limits) :]):
        return "not moving", 0
    span = limits.arriving_faster_minutes
    pairs = list(zip(minutes.added, minutes.ended, strict=True))[-span:]
    grew = [added > ended for added, ended in pairs]
    growth = sum(added - ended for added, ended in pairs)
    if len(pairs) == span and sum(grew) >= _GROWING_SHARE * span and grew[-1] and ready >= growth > 0:
        return "arriving faster", span
    return ("moving" if ready or in_flight or any(minutes.ended[-1:]) else "idle"), 0


def _still(limits: Thresholds) -> int:
    return max(1, int(limits.queue_still_s // 60))


def oldest_wait_s(queues: Sequence[str], waits: Mapping[str, float], paused: Mapping[str, Any]) -> float | None:
    """How long the oldest message has waited on these queues, those that are paused left out."""
    return max((waits[queue] for queue in queues if queue in waits and queue not in paused), default=None)

"""Heartbeat: what every worker process says of itself, every few seconds; and the list of all of them."""

import json
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from shared.coordination import keys
from shared.coordination.periodic import Periodic
from shared.coordination.redis import RedisLink, RedisUnavailable, Script

_WRITE = Script("heartbeat_write")

#: Seconds between two beats.
INTERVAL_S = 5.0
#: Seconds a silent worker stays on the list: long enough to be seen as gone, then it leaves.
TTL_S = 900.0

WorkerState = Literal["running", "draining"]


@dataclass(frozen=True, slots=True)
class Identity:
    """
    What does not change while a process lives.

    `id` is unique per process start; `name` is what people call it (dyno, host); `kind` is its Procfile line;
    `providers` are the circuits it uses, as `keys.provider_part` names them.
    """

    id: str
    name: str
    kind: str
    version: str
    queues: tuple[str, ...] = ()
    threads: int = 0
    providers: tuple[str, ...] = ()
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))


@dataclass(frozen=True, slots=True)
class Consumer:
    """One consuming thread: at work or not, and seconds since it last got anywhere."""

    name: str
    busy: bool
    progress_age_s: float


@dataclass(frozen=True, slots=True)
class Worker:
    """
    A process as the list shows it, by Redis's clock.

    `beat_age_s` is the time since its last beat: late after two intervals, gone after more. `seconds_left` is what
    a draining process has of `drain_s` until its deadline, at that beat less the beat's age; None while running.
    """

    identity: Identity
    state: WorkerState
    seconds_left: float | None
    drain_s: float | None
    paused: tuple[str, ...]
    busy: int
    consumers: tuple[Consumer, ...]
    beat_age_s: float


class Heartbeat:
    """
    The beats of this process, from a thread of its own: a process whose consumers hang still beats, and shows it.

    Consumers call `progress` whenever they get anywhere. Redis being away costs beats, nothing else.
    """

    def __init__(
        self,
        link: RedisLink,
        identity: Identity,
        *,
        interval_s: float = INTERVAL_S,
        ttl_s: float = TTL_S,
        namespace: str = keys.NAMESPACE,
        also: Callable[[], object] | None = None,
        paused: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """`also` is called after every beat: for what wants the same rhythm. `paused` tells the queues left alone."""
        self._link = link
        self._identity = identity
        self._ttl_ms = round(ttl_s * 1000)
        self._keys = (keys.WORKER.name(namespace, worker=identity.id), keys.WORKERS.name(namespace))
        self._queues_key = keys.QUEUES.name(namespace)
        self._also = also
        self._paused = paused
        self._lock = threading.Lock()
        self._progress: dict[str, tuple[bool, float]] = {}
        self._drain_until: float | None = None
        self._drain_s: float | None = None
        self._periodic = Periodic("heartbeat", interval_s, self.beat)

    def start(self) -> None:
        """Beat now and from here on."""
        self._periodic.start()
        self._periodic.wake()

    def stop(self) -> None:
        """Leave the list: a clean exit. Without it the process shows as gone."""
        self._periodic.stop()
        worker, workers = self._keys
        try:
            self._link.pipeline([("DEL", worker), ("ZREM", workers, self._identity.id)])
        except RedisUnavailable:
            return  # it leaves the list when its time to live is over

    def progress(self, consumer: str, *, busy: bool) -> None:
        """Note that a consuming thread got somewhere; `busy` while it has a message. Costs no round trip."""
        with self._lock:
            self._progress[consumer] = (busy, time.monotonic())

    def drain(self, seconds_left: float) -> None:
        """Say from now on, and at once, that this process is ending."""
        self._drain_until = time.monotonic() + seconds_left
        self._drain_s = seconds_left
        self._periodic.wake()

    def beat(self) -> None:
        """
        Write one beat. Called by the thread.

        Raises:
            RedisUnavailable: nothing was written.
        """
        now = time.monotonic()
        with self._lock:
            consumers = [[name, busy, round(now - at, 1)] for name, (busy, at) in sorted(self._progress.items())]
        left_s = None if self._drain_until is None else round(max(0.0, self._drain_until - now), 1)
        said = asdict(self._identity) | {
            "started_at": self._identity.started_at.isoformat(),
            "seconds_left": left_s,
            "drain_s": self._drain_s,
            "paused": sorted(self._paused()),
            "consumers": consumers,
        }
        args: tuple[str | int, ...] = (self._identity.id, json.dumps(said), self._ttl_ms, *self._identity.queues)
        try:
            self._link.run(_WRITE, keys=(*self._keys, self._queues_key), args=args)
        finally:
            if self._also is not None:
                self._also()


def list_workers(link: RedisLink, *, namespace: str = keys.NAMESPACE) -> list[Worker]:
    """
    Every process that has beaten within the time to live and not left, sorted by kind and name.

    Raises:
        RedisUnavailable: nobody knows.
    """
    clock, beats = link.pipeline([("TIME",), ("ZRANGE", keys.WORKERS.name(namespace), 0, -1, "WITHSCORES")])
    if not beats:
        return []
    now_ms = int(clock[0]) * 1000 + int(clock[1]) // 1000
    at = _pairs(beats)
    (texts,) = link.pipeline([("MGET", *(keys.WORKER.name(namespace, worker=worker) for worker in at))])
    found = [
        _worker(json.loads(text), beat_age_s=max(0.0, now_ms - at_ms) / 1000)
        for text, at_ms in zip(texts, at.values(), strict=True)
        if text is not None
    ]
    return sorted(found, key=lambda worker: (worker.identity.kind, worker.identity.name, worker.identity.id))


def list_queues(link: RedisLink, *, namespace: str = keys.NAMESPACE) -> dict[str, datetime]:
    """
    Every queue that a worker has consumed within a week, and when one that consumes it last beat (aware UTC).

    Raises:
        RedisUnavailable: nobody knows.
    """
    (found,) = link.pipeline([("ZRANGE", keys.QUEUES.name(namespace), 0, -1, "WITHSCORES")])
    return {queue: datetime.fromtimestamp(at_ms / 1000, tz=UTC) for queue, at_ms in _pairs(found).items()}


def alive(workers: Sequence[Worker], *, queues: Collection[str], within_s: float = 3 * INTERVAL_S) -> int:
    """How many of them consume any of `queues` and have beaten within `within_s`."""
    return sum(
        not set(queues).isdisjoint(worker.identity.queues) and worker.beat_age_s <= within_s for worker in workers
    )


def _worker(said: dict[str, Any], *, beat_age_s: float) -> Worker:
    left_s = said["seconds_left"]
    consumers = tuple(Consumer(name, busy, age_s + beat_age_s) for name, busy, age_s in said["consumers"])
    return Worker(
        identity=Identity(
            id=said["id"],
            name=said["name"],
            kind=said["kind"],
            version=said["version"],
            queues=tuple(said["queues"]),
            threads=said["threads"],
            providers=tuple(said["providers"]),
            started_at=datetime.fromisoformat(said["started_at"]),
        ),
        state="running" if left_s is None else "draining",
        seconds_left=None if left_s is None else max(0.0, left_s - beat_age_s),
        drain_s=said.get("drain_s"),
        paused=tuple(said.get("paused", ())),
        busy=sum(consumer.busy for consumer in consumers),
        consumers=consumers,
        beat_age_s=beat_age_s,
    )


def _pairs(flat: Sequence[Any]) -> dict[str, float]:
    # redis-py gives pairs or a flat list, by how the command was sent and which protocol is spoken.
    if flat and isinstance(flat[0], (list, tuple)):
        return {str(member): float(score) for member, score in flat}
    return {str(member): float(score) for member, score in zip(flat[::2], flat[1::2], strict=True)}

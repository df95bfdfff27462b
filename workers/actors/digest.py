"""
Dispatch: every few minutes each digest channel is told what is due at that moment, in one message.

Per channel: detect and commit; claim what is due as one message and commit; call, all channels at the same time, no
transaction open; record under the claim. One dispatcher at a time holds the flight; where Redis is away, or two run all
the same, the claims in the ledger keep them apart.
"""

import logging
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import dramatiq

from shared.coordination.redis import RedisUnavailable
from shared.coordination.single_flight import Flight, FlightLost, SingleFlight
from shared.domain.digest_retry import Judged
from shared.domain.digests import ChannelType, DigestStatus, LogEvent
from shared.domain.ids import new_send_id
from shared.domain.outcome import Ambiguous, NotAttempted, Outcome
from shared.jobs import MESSAGE_VERSION, Broker, JobName, Jobs, QueueName
from shared.ledger import digest_channels, digest_runs, notifications
from shared.ledger.db import POSTGRES_AWAY
from shared.ledger.digest_channels import TakenChannel
from shared.ledger.notifications import Claimed
from workers.actors.digest_calls import lacks, make_caller, ready_call
from workers.actors.digest_record import Recorder
from workers.actors.digest_trial import try_channel
from workers.middleware.runtime import Runtime
from workers.providers.digest.caller import Caller
from workers.providers.digest.requests import DigestCall

_log = logging.getLogger(__name__)

#: Names the lock in Redis, and seconds after which a dispatcher that died is followed by another.
LOCK, _LEASE_S = "digest", 15.0
#: Seconds for which a claim outlives the longest call: time to record it.
_CLAIM_SLACK_S = 30.0
#: Channels called at the same time.
_AT_ONCE = 50
#: Calls during which a dispatcher may die before that counts as the endpoint's failure.
_MAX_TAKEN_OVER = 3

_Ready = tuple[TakenChannel, Claimed]


class Dispatch:
    """One process's dispatcher."""

    def __init__(self, runtime: Runtime, jobs: Jobs) -> None:
        self._runtime = runtime
        self.jobs = jobs

    def run(self, *, began: datetime | None = None) -> dict[str, Any]:
        """
        Tell every channel what is due; what was done, in counts.

        Raises: what psycopg raises when the ledger goes away; the next run finds what this one left.
        """
        done: Counter[str] = Counter()
        with self._alone() as (alone, flight):
            if not alone:
                return {"skipped": "another run is under way"}
            try:
                self._run(done, flight, Recorder(self._runtime, self.jobs, began=began))
            except FlightLost:
                done["overtaken"] = 1
        if any(done.values()):
            self._runtime.doorbell.ring("digests")
            _log.info("digest_run_done", extra={"event_id": LogEvent.RUN_DONE.value, **done})
        return dict(done)

    def _run(self, done: Counter[str], flight: Flight | None, recorder: Recorder) -> None:
        with self._runtime.ledger.autocommit() as connection:
            channels = digest_channels.enabled(connection)
        for channel_id in channels:
            self._detect(channel_id, done)
        caller = make_caller(self._runtime.settings)
        try:
            for start in range(0, len(channels), _AT_ONCE):
                some = channels[start : start + _AT_ONCE]
                while some and not self._runtime.draining:
                    if flight is not None:
                        flight.check()
                    some = self._tell(some, caller, flight, recorder, done)
        finally:
            caller.close()

    def _detect(self, channel_id: int, done: Counter[str]) -> None:
        with self._runtime.ledger.transaction() as connection:
            channel = digest_channels.take(connection, channel_id)
            if channel is None:
                return
            baseline = not channel.baselined and not channel.tells_existing
            found = notifications.detect(connection, channel_id, baseline=baseline)
        if baseline:
            extra = {"event_id": LogEvent.BASELINE_TAKEN.value, "channel": channel.name, "known": found}
            _log.info("digest_baseline_taken", extra=extra)
        done["known" if baseline else "found"] += found

    def _tell(
        self, channels: Sequence[int], caller: Caller, flight: Flight | None, recorder: Recorder, done: Counter[str]
    ) -> Sequence[int]:
        """One message for each of these channels that has any due; which of them may have more for this run."""
        again: list[int] = []
        ready: list[_Ready] = []
        calls: list[DigestCall] = []
        for channel_id in channels:
            claimed = self._claim(channel_id)
            if claimed is None:
                continue
            outcome = self._without_call(*claimed)
            if outcome is None and claimed[0].type is not ChannelType.EMAIL:
                call = ready_call(claimed[0], claimed[1].digest, self._runtime.settings)
                if isinstance(call, DigestCall):
                    ready.append(claimed)
                    calls.append(call)
                    continue
                outcome = call
            judged = recorder.tell_by_email(*claimed) if outcome is None else recorder.record(*claimed, outcome)
            self._count(claimed, judged, done, again)
        until = self._look_last(ready)
        answers = caller.send(
            calls,
            pause=self._runtime.wait_draining,
            may_start=lambda index: time.monotonic() < until[index] and (flight is None or flight.held),
            must_cut=lambda: self._runtime.must_cut,
        )
        for index, answered in answers:
            judged = recorder.record(*ready[index], answered.outcome)
            self._count(ready[index], judged, done, again)
        return again

    def _claim(self, channel_id: int) -> _Ready | None:
        lease_s = self._runtime.settings.digest_timeout_ms / 1000 + _CLAIM_SLACK_S
        with self._runtime.ledger.transaction() as connection:
            channel = digest_channels.take(connection, channel_id)
            if channel is None or channel.waits:
                return None
            claimed = notifications.claim(connection, channel, lease_s=lease_s)
        if claimed is None:
            return None
        if claimed.taken_over:
            extra = {"event_id": LogEvent.DIGEST_TAKEN_OVER.value, "channel": channel.name}
            _log.warning("digest_taken_over", extra={**extra, "digest": str(claimed.digest.id)})
        return channel, claimed

    def _look_last(self, ready: Sequence[_Ready]) -> list[float]:
        """
        The last look before the first byte: until when (monotonic) each call may start.

        Whoever was frozen since the claim finds it another's, or with too little left of it for the call to end in.
        """
        if not ready:
            return []
        looked_at = time.monotonic()
        with self._runtime.ledger.autocommit() as connection:
            left = notifications.held_s(connection, [claimed for _, claimed in ready])
        longest_s = self._runtime.settings.digest_timeout_ms / 1000
        return [looked_at + left.get(claimed.digest.id, 0.0) - longest_s for _, claimed in ready]

    def _without_call(self, channel: TakenChannel, claimed: Claimed) -> Outcome | None:
        if not claimed.digest.items:
            return NotAttempted("nothing of it is left to be told")
        if claimed.taken_over > _MAX_TAKEN_OVER:
            return Ambiguous("dispatcher_died", f"a dispatcher ended during each of {claimed.taken_over} calls")
        return lacks(channel, self._runtime.settings)

    @staticmethod
    def _count(claimed: _Ready, judged: Judged | None, done: Counter[str], again: list[int]) -> None:
        if judged is None:
            return
        channel, message = claimed
        done[judged.status.value] += 1
        done["told"] += len(message.digest.items) if judged.status is DigestStatus.SENT else 0
        if judged.status is DigestStatus.SENT and message.maybe_known:
            again.append(channel.id)  # a repeat was taken: what has become due besides it goes now, too

    @contextmanager
    def _alone(self) -> Iterator[tuple[bool, Flight | None]]:
        namespace = self._runtime.settings.redis_namespace
        flight = SingleFlight(self._runtime.link, name=LOCK, lease_s=_LEASE_S, namespace=namespace)
        entered = flight.hold()
        try:
            held = entered.__enter__()
        except RedisUnavailable:
            yield True, None  # the claims keep two dispatchers apart
            return
        try:
            yield held is not None, held
        finally:
            entered.__exit__(None, None, None)


def register(broker: Broker, runtime: Runtime) -> None:
    """Declare the actor."""
    dispatch = Dispatch(runtime, Jobs(broker))

    @dramatiq.actor(broker=broker, actor_name=JobName.DIGEST.value, queue_name=QueueName.OPS.value)
    def digest(*, v: int, slot: int | None = None, run: str | None = None) -> None:
        if v != MESSAGE_VERSION:
            return
        try:
            if run is None:
                _run_for_clock(dispatch, runtime, slot or 0)
            else:
                _run_for_person(dispatch, runtime, UUID(run))
        except POSTGRES_AWAY as error:
            _log.warning("digest_run_interrupted", extra={"error": type(error).__name__})


def _run_for_clock(dispatch: Dispatch, runtime: Runtime, slot: int) -> None:
    id_ = new_send_id()
    with runtime.ledger.autocommit() as connection:
        digest_runs.begin_periodic(connection, id_, worker=runtime.lease.name)
    result = dispatch.run(began=datetime.fromtimestamp(slot / 1000, UTC) if slot else None)
    with runtime.ledger.autocommit() as connection:
        digest_runs.end(connection, id_, result=result)


def _run_for_person(dispatch: Dispatch, runtime: Runtime, id_: UUID) -> None:
    with runtime.ledger.transaction() as connection:
        is_ours, channel_id = digest_runs.begin(connection, id_, worker=runtime.lease.name)
        if is_ours and channel_id is None:
            digest_channels.look_again(connection)
    if not is_ours:
        return
    result = dispatch.run() if channel_id is None else try_channel(runtime, dispatch.jobs, channel_id)
    with runtime.ledger.autocommit() as connection:
        digest_runs.end(connection, id_, result=result)

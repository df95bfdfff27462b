"""
Digest calls of one thread, all at the same time; a webhook is repeated within its call, under one id, and so is
whatever surely did not leave.

The two layers of repeating have nothing to do with each other: this one lasts seconds and repeats what the receiver
never had, or can tell from a new message; across runs the ledger decides (`shared.domain.digest_retry`).
"""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from shared.domain.outcome import Accepted, Ambiguous, NotAttempted, Outcome, Transient
from workers.providers.digest import answers
from workers.providers.digest.guard import AddressGuard
from workers.providers.digest.requests import DigestCall, request_of
from workers.providers.http import HttpLimits, HttpResult
from workers.providers.http_engine import HttpEngine

#: Tries within a call, and seconds before the second and third.
_TRIES = 3
_PAUSE_S = 0.5
#: Milliseconds; a try with less time than this left is not begun.
_LEAST_MS = 500
_TOO_LATE = "it was too late for the call: another dispatcher may be at it"


class Answered(NamedTuple):
    """What a call came to, and the last answer in words for a person."""

    outcome: Outcome
    shown: str
    tries: int


@dataclass
class _Open:
    call: DigestCall
    until: float
    tries: int = 0
    again_at: float | None = None
    #: An earlier try may have been taken, whatever the last one says.
    unsure: Ambiguous | None = None
    #: What the last try came to.
    last: Answered | None = None


class Caller:
    """The adapter of one thread. `private` are host names that may have an address that is not public."""

    def __init__(self, *, timeout_ms: int, ca_file: str | None, private: Collection[str]) -> None:
        self._timeout_ms = timeout_ms
        self._private = private
        self._open: dict[int, _Open] = {}
        self._guard = AddressGuard(lambda token: self._open[token].call.host in self._private)
        self._engine = HttpEngine(
            HttpLimits(
                total_timeout_ms=timeout_ms,
                connect_timeout_ms=min(3_000, timeout_ms),
                ca_file=ca_file,
                socket_opener=self._guard.opener,
            )
        )

    def send(
        self,
        calls: Sequence[DigestCall],
        *,
        pause: Callable[[float], object],
        may_start: Callable[[int], bool] = lambda _: True,
        must_cut: Callable[[], bool] = lambda: False,
    ) -> Iterator[tuple[int, Answered]]:
        """
        Make the calls and yield the index and answer of each as it ends.

        `pause` waits for so many seconds, or less where the process is to stop; `may_start` is asked directly before
        each call's first byte; `must_cut` says that calls under way have no time left.
        """
        until = time.monotonic() + self._timeout_ms / 1_000
        self._open = {}
        for index, call in enumerate(calls):
            if may_start(index):
                self._open[index] = _Open(call, until)
                self._start(index)
        for index in range(len(calls)):
            if index not in self._open:
                yield index, Answered(NotAttempted(_TOO_LATE), _TOO_LATE, 0)
        while self._open:
            for ended in self._engine.results():
                if ended is not None and (answered := self._take(*ended)) is not None:
                    del self._open[ended[0]]
                    yield ended[0], answered
                yield from self._start_waiting()
                if must_cut():
                    self._engine.stop()
            waits = [entry.again_at for entry in self._open.values() if entry.again_at is not None]
            if waits:
                pause(max(0.0, min(waits) - time.monotonic()))
                yield from self._start_waiting()

    def close(self) -> None:
        """Close kept connections."""
        self._engine.close()

    def _start(self, index: int) -> None:
        entry = self._open[index]
        entry.tries += 1
        entry.again_at = None
        left_ms = int((entry.until - time.monotonic()) * 1_000)
        # A webhook that hangs leaves time for another try: its id makes that safe.
        share = left_ms // 2 if entry.call.may_repeat and entry.tries < _TRIES and left_ms >= 4 * _LEAST_MS else left_ms
        self._engine.start(index, request_of(entry.call, timeout_ms=max(share, 1)))

    def _start_waiting(self) -> Iterator[tuple[int, Answered]]:
        """Start the tries whose time has come; whoever was held up beyond the end of the call makes no more of them."""
        now = time.monotonic()
        for index, entry in list(self._open.items()):
            if entry.again_at is None or entry.again_at > now:
                continue
            if now < entry.until:
                self._start(index)
            elif entry.last is not None:
                del self._open[index]
                yield index, entry.last

    def _take(self, index: int, result: HttpResult) -> Answered | None:
        """The answer of a call; None where it is tried again."""
        entry = self._open[index]
        # A host may have an address of each kind: where one was refused, another may have taken the request.
        refused = self._guard.was_refused(index) and result.was_not_sent
        outcome = answers.refused_address() if refused else answers.outcome_of(entry.call.type, result)
        if isinstance(outcome, Ambiguous):
            entry.unsure = outcome
        again_at = time.monotonic() + _PAUSE_S * 2 ** (entry.tries - 1)
        has_time = entry.until - again_at > _LEAST_MS / 1_000
        is_safe = entry.call.may_repeat or result.was_not_sent
        is_again = is_safe and entry.tries < _TRIES and has_time and _may_pass(outcome)
        if entry.unsure is not None and not isinstance(outcome, Accepted):
            outcome = entry.unsure
        answered = Answered(outcome, answers.shown(result), entry.tries)
        if not is_again:
            return answered
        entry.again_at, entry.last = again_at, answered
        return None


def _may_pass(outcome: Outcome) -> bool:
    """5xx, 408, time-outs and lost connections; being told to wait is heeded across runs."""
    if isinstance(outcome, Ambiguous):
        return outcome.code != "call_cut"
    return isinstance(outcome, Transient) and outcome.retry_after_s is None

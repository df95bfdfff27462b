"""
The process's link to Redis: client factory, Lua loading, and the one place that decides Redis is unreachable.

Redis holds transport and shared state, never truth: everything here may vanish at any moment, and callers
either have an answer without it or say so.
"""

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

_log = logging.getLogger(__name__)
_LUA = Path(__file__).parent / "lua"

#: Seconds a guard waits for Redis, connecting and reading each: a hanging Redis must cost less than a send.
GUARD_TIMEOUT_S = 0.25
#: Seconds a process leaves Redis alone after it failed to answer; then one thread asks for all.
ASK_AGAIN_S = 1.5

#: Error replies that mean "this server cannot serve now", not "the command is wrong". The pages of Redis call
#: them -OOM (maxmemory reached), -MISCONF (cannot persist), -READONLY (a replica), -BUSY (a long script), …
_REFUSALS = ("OOM", "MISCONF", "READONLY", "BUSY", "LOADING", "MASTERDOWN", "NOREPLICAS", "CLUSTERDOWN", "TRYAGAIN")


class RedisUnavailable(Exception):  # noqa: N818  # a state of the world, not a mistake
    """Redis cannot be asked now: unreachable, not answering in time, or refusing to serve."""


@dataclass(frozen=True, slots=True)
class RedisHealth:
    """
    What one look at the server showed.

    `max_memory_bytes` is None where the server has no limit. Any `eviction_policy` but "noeviction" loses
    queue keys without an error (Source: Redis documentation, "Key eviction").
    """

    version: str
    ping_s: float
    used_memory_bytes: int
    max_memory_bytes: int | None
    eviction_policy: str
    evicted_keys: int
    connected_clients: int
    rejected_connections: int


class Script:
    """
    One Lua file of `lua/`, preceded by the fragments (files of local functions) that it uses.

    Fragments keep each rule in one place: the circuit's is the same alone and inside the guards' script.
    """

    def __init__(self, name: str, *fragments: str) -> None:
        self.name = name
        parts = [(_LUA / f"{part}.lua").read_text(encoding="utf-8") for part in ("clock", *fragments, name)]
        self.source = "\n".join(parts)
        self.sha = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()


def connect(url: str, *, timeout_s: float = GUARD_TIMEOUT_S, max_connections: int = 256) -> redis.Redis:
    """
    A client for a redis://, rediss:// or unix:// URL that never repeats a command behind our back.

    Nothing is contacted yet. Answers are decoded to `str`. A certificate is verified; `?ssl_ca_certs=PATH`
    in the URL names an authority of one's own.

    Source: redis-py 8 repeats commands up to ten times for clients made from keyword arguments, EVALSHA
    included; a lost reply then runs a script twice.
    """
    return redis.Redis.from_url(
        url,
        decode_responses=True,
        protocol=2,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        socket_keepalive=True,
        max_connections=max_connections,
        retry=Retry(NoBackoff(), 0),
    )


class RedisLink:
    """
    Redis as the threads of one process see it.

    Every failure to get an answer becomes `RedisUnavailable`, here and nowhere else. After one, nothing is
    asked for `ask_again_s` seconds: callers fail at once instead of each paying the timeout; then a single
    thread asks for all. Going away and coming back are logged once each, and told to `on_change`.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = GUARD_TIMEOUT_S,
        ask_again_s: float = ASK_AGAIN_S,
        on_change: Callable[[bool], None] | None = None,
    ) -> None:
        self._client = connect(url, timeout_s=timeout_s)
        self._url = url
        self._ask_again_s = ask_again_s
        self._on_change = on_change
        self._lock = threading.Lock()
        self._unreachable_since: float | None = None
        self._ask_at = 0.0
        self._refused = 0

    @property
    def reachable(self) -> bool:
        """Whether the last question was answered; True before the first."""
        return self._unreachable_since is None

    def run(self, script: Script, *, keys: Sequence[str], args: Sequence[str | int] = ()) -> Any:
        """
        Run a script and give its reply; it is sent whole where the server does not know it.

        Raises:
            RedisUnavailable: no answer. The script may have run all the same.
        """
        return self._ask(lambda: self._evaluate(script, keys, args))

    def pipeline(self, commands: Sequence[Sequence[str | int]]) -> list[Any]:
        """
        Send several plain commands in one round trip; their replies in order. Not a transaction.

        Raises:
            RedisUnavailable: no answer. Any of the commands may have run.
        """

        def send() -> list[Any]:
            pipe = self._client.pipeline(transaction=False)
            for command in commands:
                pipe.execute_command(*command)  # type: ignore[no-untyped-call]
            return list(pipe.execute())

        return list(self._ask(send))

    def health(self) -> RedisHealth:
        """
        Look at the server's state; for /readyz and the System tab.

        Raises:
            RedisUnavailable: no answer.
        """
        started = time.monotonic()
        self.pipeline([("PING",)])
        ping_s = time.monotonic() - started
        info: dict[str, Any] = self._ask(self._client.info)
        return RedisHealth(
            version=str(info.get("redis_version", "")),
            ping_s=ping_s,
            used_memory_bytes=int(info.get("used_memory", 0)),
            max_memory_bytes=int(info.get("maxmemory", 0)) or None,
            eviction_policy=str(info.get("maxmemory_policy", "")),
            evicted_keys=int(info.get("evicted_keys", 0)),
            connected_clients=int(info.get("connected_clients", 0)),
            rejected_connections=int(info.get("rejected_connections", 0)),
        )

    def subscriber(self, *, timeout_s: float) -> redis.Redis:
        """A client of its own for a subscription: pub/sub may be silent longer than a guard may wait."""
        return connect(self._url, timeout_s=timeout_s, max_connections=2)

    def close(self) -> None:
        """Close every connection; the link may be used again and then reconnects."""
        self._client.close()

    def _evaluate(self, script: Script, keys: Sequence[str], args: Sequence[str | int]) -> Any:
        operands = (len(keys), *keys, *args)
        try:
            return self._client.execute_command("EVALSHA", script.sha, *operands)  # type: ignore[no-untyped-call]
        except redis.exceptions.NoScriptError:
            # It did not run: the server was restarted or its scripts were flushed.
            return self._client.execute_command("EVAL", script.source, *operands)  # type: ignore[no-untyped-call]

    def _ask(self, question: Callable[[], Any]) -> Any:
        if not self._may_ask():
            raise RedisUnavailable("not asked: Redis did not answer a moment ago")
        try:
            answer = question()
        except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError, OSError) as fault:
            self._note_failure(type(fault).__name__)
            raise RedisUnavailable(type(fault).__name__) from fault
        except redis.exceptions.ResponseError as fault:
            reason = _refusal(fault)
            if reason is None:
                raise
            self._note_failure(reason)
            raise RedisUnavailable(reason) from fault
        if self._unreachable_since is not None:
            self._note_answer()
        return answer

    def _may_ask(self) -> bool:
        if self._unreachable_since is None:
            return True
        with self._lock:
            now = time.monotonic()
            if now < self._ask_at:
                self._refused += 1
                return False
            # This thread asks for all; moving the time on keeps the others out meanwhile.
            self._ask_at = now + self._ask_again_s
            return True

    def _note_failure(self, reason: str) -> None:
        with self._lock:
            now = time.monotonic()
            first = self._unreachable_since is None
            if first:
                self._unreachable_since = now
                self._refused = 0
            self._ask_at = now + self._ask_again_s
        if first:
            _log.warning("redis_unreachable", extra={"reason": reason})
            self._tell(reachable=False)

    def _note_answer(self) -> None:
        with self._lock:
            since, refused = self._unreachable_since, self._refused
            self._unreachable_since = None
        if since is not None:
            away_s = round(time.monotonic() - since, 1)
            _log.warning("redis_reachable_again", extra={"away_s": away_s, "questions_not_asked": refused})
            self._tell(reachable=True)

    def _tell(self, *, reachable: bool) -> None:
        if self._on_change is not None:
            self._on_change(reachable)


def _refusal(fault: redis.exceptions.ResponseError) -> str | None:
    # redis-py strips the code of errors that it has a class for (OOM, READONLY, …), and keeps it on the others.
    if isinstance(fault, redis.exceptions.OutOfMemoryError):
        return "OOM"
    if isinstance(fault, redis.exceptions.ReadOnlyError):
        return "READONLY"
    code = str(fault).split(" ", 1)[0]
    return code if code in _REFUSALS else None

"""
The stream of a page: a doorbell for the browser. It says that panels changed; the page then fetches them.

A stream costs a thread, so there are at most MONITORING_MAX_STREAMS in a process; whoever comes later is told to poll
(204), and pages always find a thread. One thread of the process listens to Redis for all of them. Events, beside the
unnamed `{"v": ms since 1970, "changed": [panels or sections]}`: `ping` after MONITORING_STREAM_PING_MS of silence,
`deaf` and `hearing` as Redis goes and comes back, `bye` before the end: the process stops, or the stream has lived
LIFE_S and the role is looked at anew.
"""

import json
import logging
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http import HTTPStatus

from flask import Flask, Response, current_app, request

from admin.extensions import Services
from admin.monitoring.access import reads
from admin.monitoring.frame import pages
from shared.coordination import doorbell
from shared.coordination.redis import RedisUnavailable

_log = logging.getLogger(__name__)

#: Seconds a stream lives at most; some end earlier, so that tabs do not come back together. A browser that vanished
#: without a word, whose connection takes what is written to it, keeps its place until then.
LIFE_S = 600.0
#: Seconds between two looks whether the process is told to stop, and whether Redis is back.
_TICK_S, _REDIS_AGAIN_S = 0.5, 2.0
#: Seconds that the first stream of a process waits for the subscription.
_SUBSCRIBED_S = 1.0
#: Milliseconds after which a browser whose stream was cut tries again: not all of them together.
_RETRY_MS = (2_000, 5_000)

_NAME = "tidings-stream"


class Listener:
    """One stream's end of the hub: what happened since it last looked. Bounded, since names repeat."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._changed: set[str] = set()
        self._words: list[str] = []

    def ring(self, panels: frozenset[str]) -> None:
        """Panels changed."""
        with self._lock:
            self._changed |= panels
        self._woken.set()

    def say(self, word: str) -> None:
        """Something happened to the stream itself; the last of its kind counts."""
        with self._lock:
            self._words = [known for known in self._words if known == "bye"] or [word]
        self._woken.set()

    def wait(self, timeout_s: float) -> tuple[list[str], frozenset[str]]:
        """Give the words and the panels since the last call; nothing after `timeout_s`."""
        self._woken.wait(timeout_s)
        with self._lock:
            self._woken.clear()
            words, self._words = self._words, []
            changed, self._changed = frozenset(self._changed), set()
        return words, changed


class Hub:
    """Hears the doorbell for the streams of this process; its thread runs while there are any."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.ping_s = services.settings.monitoring_stream_ping_ms / 1000
        self._lock = threading.Lock()
        self._listeners: set[Listener] = set()
        self._thread: threading.Thread | None = None
        self._is_deaf = False
        self._is_subscribed = threading.Event()
        #: Whether the process goes on; gunicorn's hook (`admin.serving`) puts the worker's own word here.
        self.is_alive: Callable[[], bool] = lambda: True

    def join(self) -> Listener | None:
        """Take part; None where there are as many as may be, or the process is stopping."""
        with self._lock:
            if len(self._listeners) >= self._services.settings.monitoring_max_streams or not self.is_alive():
                return None
            listener = Listener()
            if self._is_deaf:
                listener.say("deaf")
            self._listeners.add(listener)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="doorbell-hub", daemon=True)
                self._thread.start()
        # Whoever is told that the stream is open must hear what changes from then on.
        self._is_subscribed.wait(_SUBSCRIBED_S)
        return listener

    def leave(self, listener: Listener) -> None:
        """Take part no more."""
        with self._lock:
            self._listeners.discard(listener)

    def _run(self) -> None:
        while self._is_wanted():
            try:
                for panels in doorbell.listen(
                    self._services.link, tick_s=_TICK_S, namespace=self._services.settings.redis_namespace
                ):
                    # A Redis that hangs keeps the subscription and rings no more: whoever else asks it finds out.
                    self._set_deaf(deaf=not self._services.link.reachable)
                    self._is_subscribed.set()
                    if panels:
                        for listener in self._present():
                            listener.ring(panels)
                    if not self._is_wanted():
                        return
            except RedisUnavailable:
                self._set_deaf(deaf=True)
                self._is_subscribed.set()  # nobody is to wait for what does not come
                self._pause()
            except Exception:  # noqa: BLE001  # a thread's border: the streams outlive a fault in one message
                _log.exception("doorbell_hub_failed")
                self._pause()

    def _pause(self) -> None:
        until = time.monotonic() + _REDIS_AGAIN_S
        while time.monotonic() < until and self.is_alive():
            threading.Event().wait(_TICK_S)

    def _is_wanted(self) -> bool:
        alive = self.is_alive()
        if not alive:
            self._say("bye")
        with self._lock:
            if alive and self._listeners:
                return True
            self._thread = None
            self._is_subscribed.clear()
            return False

    def _set_deaf(self, *, deaf: bool) -> None:
        if deaf != self._is_deaf:
            self._is_deaf = deaf
            self._say("deaf" if deaf else "hearing")

    def _say(self, word: str) -> None:
        for listener in self._present():
            listener.say(word)

    def _present(self) -> list[Listener]:
        with self._lock:
            return list(self._listeners)


def install(app: Flask, services: Services) -> None:
    """Attach the hub of this process to the app."""
    app.extensions[_NAME] = Hub(services)


def hub(app: Flask) -> Hub:
    """The hub of an app."""
    found: Hub = app.extensions[_NAME]
    return found


@pages.get("/queues/events")
@reads
def events() -> Response:
    """The stream; 204 where there are too many, which tells a browser not to ask again by itself."""
    ours = hub(current_app)
    listener = ours.join()
    if listener is None:
        return Response(status=HTTPStatus.NO_CONTENT, headers={"Cache-Control": "no-store"})
    connection = request.environ.get("gunicorn.socket")
    response = Response(_messages(ours, listener, connection), mimetype="text/event-stream")
    # A HEAD, or a client gone before the first byte, never starts the generator that would leave.
    response.call_on_close(lambda: ours.leave(listener))
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Accel-Buffering"] = "no"
    return response


def _messages(ours: Hub, listener: Listener, connection: socket.socket | None) -> Iterator[str]:
    ends_at = time.monotonic() + LIFE_S * random.uniform(0.8, 1.0)  # noqa: S311  # only spreads the load
    try:
        yield f"retry: {random.randint(*_RETRY_MS)}\n\n"  # noqa: S311  # as above
        while time.monotonic() < ends_at:
            words, changed = listener.wait(ours.ping_s)
            for word in words:
                yield _event(word)
                if word == "bye":
                    _hear_no_more(connection)
                    return
            if changed:
                yield f"data: {json.dumps({'v': round(time.time() * 1000), 'changed': sorted(changed)})}\n\n"
            elif not words:
                yield _event("ping")
        yield _event("bye")
    finally:
        ours.leave(listener)


def _hear_no_more(connection: socket.socket | None) -> None:
    """
    Let nothing wait for what the browser still says on a connection: it has nothing to say.

    gunicorn waits up to two seconds for each connection to be closed by the other end, one after the other, and keeps
    those that may carry another request for as long.
    """
    if connection is not None:
        with suppress(OSError):  # the browser was faster
            connection.shutdown(socket.SHUT_RD)


def _event(word: str) -> str:
    return f"event: {word}\ndata: {{}}\n\n"

"""
Who builds the snapshot, and when: one process for the whole fleet of a release, at most every FRESH_S seconds.

The document lies in Redis. Whoever finds it older than FRESH_S and nobody at work builds the next one; the others show
the last until it is there. Without Redis each process builds its own, no more often, and keeps its last in memory.
Building happens in a thread, so that a page never waits longer than it says here, whatever the stores do.
"""

import json
import logging
import threading
import time
from typing import Any
from uuid import uuid4

from flask import Flask, current_app

from admin.extensions import Services
from admin.monitoring.snapshot import LAST_GOOD_S, Snapshot, build
from admin.monitoring.snapshot_shape import SHAPE
from shared.coordination import keys
from shared.coordination.redis import RedisUnavailable, Script

_log = logging.getLogger(__name__)
_LOOK = Script("snapshot_look")
_STORE = Script("snapshot_store")

#: Seconds for which nobody builds again.
FRESH_S = 2.0
#: Seconds after which a builder is taken for dead.
LONGEST_BUILD_S = 8.0
#: Seconds a page waits for the next document where it knows one that is not old, and where it knows none.
_SHORT_WAIT_S, _LONG_WAIT_S = 0.5, 5.0
#: Seconds; a document that is older is worth a long wait.
_OLD_S = 15.0
#: Seconds between two looks while another process builds.
_LOOK_AGAIN_S = 0.1

_NAME = "tidings-snapshots"


class SnapshotCache:
    """What this process knows of the snapshot; one per process."""

    def __init__(self, services: Services) -> None:
        self._services = services
        #: This process's, which builds one at a time.
        self._token = uuid4().hex
        names = (keys.SNAPSHOT, keys.SNAPSHOT_BUILD)
        self._keys = [key.name(services.settings.redis_namespace, shape=SHAPE) for key in names]
        self._lock = threading.Lock()
        self._known: Snapshot | None = None
        self._fresh_until = 0.0
        self._refreshed: threading.Event | None = None

    def get(self) -> Snapshot:
        """
        The newest snapshot that can be had without a long wait.

        Raises: TimeoutError where none was ever built here and none comes in time.
        """
        with self._lock:
            if self._known is not None and time.monotonic() < self._fresh_until:
                return self._known
            refreshed = self._refreshed or self._start_refresh()
        refreshed.wait(_LONG_WAIT_S if self._is_old() else _SHORT_WAIT_S)
        if self._known is None:
            raise TimeoutError("no snapshot yet")
        return self._known

    def outdate(self) -> None:
        """Let the next page build anew: somebody just changed what it shows, and looks for the change."""
        self._fresh_until = 0.0
        try:
            self._services.link.pipeline([("DEL", self._keys[1])])
        except RedisUnavailable:
            return

    def _is_old(self) -> bool:
        return self._known is None or time.time() - self._known.version / 1000 > _OLD_S

    def _start_refresh(self) -> threading.Event:
        self._refreshed = threading.Event()
        threading.Thread(target=self._refresh, args=(self._refreshed,), name="snapshot", daemon=True).start()
        return self._refreshed

    def _refresh(self, refreshed: threading.Event) -> None:
        try:
            self._look_or_build()
        except Exception:  # noqa: BLE001  # a thread's border: pages go on with what is known, and the next one tries anew
            _log.exception("snapshot_failed")
            self._fresh_until = time.monotonic() + FRESH_S
        finally:
            with self._lock:
                self._refreshed = None
            refreshed.set()

    def _look_or_build(self) -> None:
        until = time.monotonic() + LONGEST_BUILD_S
        while True:
            began = time.monotonic()
            try:
                text, state, left_ms = self._services.link.run(
                    _LOOK, keys=self._keys, args=(self._token, round(LONGEST_BUILD_S * 1000))
                )
            except RedisUnavailable:
                self._note(build(self._services, self._last()), shared=False, fresh_until=began + FRESH_S)
                return
            found = json.loads(text) if text else None
            if state == "yours":
                document = build(self._services, self._newest(found))
                self._note(document, shared=self._share(document, began), fresh_until=began + FRESH_S)
                return
            if found and (state == "done" or not self._is_newer_than(found)):
                fresh_s = max(left_ms, 0) / 1000 if state == "done" else _LOOK_AGAIN_S
                self._note(found, shared=True, fresh_until=time.monotonic() + min(fresh_s, FRESH_S))
                return
            if time.monotonic() > until:
                return
            threading.Event().wait(_LOOK_AGAIN_S)

    def _share(self, document: dict[str, Any], began: float) -> bool:
        left_ms = max(1, round((FRESH_S - (time.monotonic() - began)) * 1000))
        args = (self._token, json.dumps(document), LAST_GOOD_S * 1000, left_ms)
        try:
            return bool(self._services.link.run(_STORE, keys=self._keys, args=args))
        except RedisUnavailable:
            return False

    def _note(self, document: dict[str, Any], *, shared: bool, fresh_until: float) -> None:
        self._known = Snapshot(document, shared=shared)
        self._fresh_until = fresh_until

    def _last(self) -> dict[str, Any] | None:
        return dict(self._known.document) if self._known is not None else None

    def _newest(self, found: dict[str, Any] | None) -> dict[str, Any] | None:
        return self._last() if found is None or self._is_newer_than(found) else found

    def _is_newer_than(self, found: dict[str, Any]) -> bool:
        return self._known is not None and self._known.version > found["v"]


def install(app: Flask, services: Services) -> None:
    """Attach the cache of this process to the app."""
    app.extensions[_NAME] = SnapshotCache(services)


def snapshot() -> Snapshot:
    """The snapshot for the running request; raises TimeoutError where there is none yet."""
    cache: SnapshotCache = current_app.extensions[_NAME]
    return cache.get()


def outdate() -> None:
    """Let the next page of this person build anew, after something was changed."""
    cache: SnapshotCache = current_app.extensions[_NAME]
    cache.outdate()

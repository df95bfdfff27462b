"""
The application in the test's own process, with a page whose panels show what a test says.

What the frame does is tried here; the pages themselves are tried on the web process as it is deployed (`site`).
"""

import math
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from flask import Flask
from flask.testing import FlaskClient
from jinja2 import ChoiceLoader, FileSystemLoader
from psycopg_pool import PoolTimeout
from werkzeug.serving import make_server

from admin.app import create_app
from admin.extensions import db, installed
from admin.monitoring import panels
from admin.monitoring.access import reads
from admin.monitoring.frame import page
from admin.monitoring.panels import Panel, View
from admin.monitoring.snapshot import Snapshot
from admin.monitoring.snapshot_cache import SnapshotCache
from admin.monitoring.stream import Hub, hub
from shared.coordination.doorbell import Doorbell
from shared.coordination.redis import RedisLink
from shared.domain.roles import Role
from shared.settings import Settings
from tests.support.browser import sign_in
from tests.support.waiting import wait_until

PATH = "/admin/monitoring/trial"


class Stage:
    """
    A served application. `word`, `rows` and `is_busy` are what its page shows from now on; `takes_s`: how long a panel
    takes; `is_readable`: whether the ledger answers it.
    """

    def __init__(self, settings: Settings) -> None:
        self._begin()
        self.settings = settings
        self.app: Flask = create_app(settings)
        self._add_page()
        self.app.jinja_loader = ChoiceLoader(
            [self.app.jinja_loader or FileSystemLoader([]), FileSystemLoader(Path(__file__).parent / "templates")]
        )
        self._server = make_server("127.0.0.1", 0, self.app, threaded=True)
        self.url = f"http://127.0.0.1:{self._server.port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def hub(self) -> Hub:
        return hub(self.app)

    def cookie(self, role: Role = Role.ADMIN) -> tuple[str, str]:
        """Give the name and value of a signed-in browser's cookie."""
        client: FlaskClient = self.app.test_client()
        sign_in(self.app, client, role=role)
        name = str(self.app.config["SESSION_COOKIE_NAME"])
        kept = client.get_cookie(name)
        assert kept is not None
        return name, kept.value

    def ring(self) -> None:
        """Say that panels changed."""
        link = RedisLink(self.settings.redis_url.get_secret_value())
        bell = Doorbell(link, namespace=self.settings.redis_namespace)
        bell.ring("trial")
        bell.close()
        link.close()

    def reset(self) -> None:
        """As at the beginning, for the next test."""
        self._begin()
        self.hub.is_alive = lambda: True

    @contextmanager
    def says_alone(self) -> Iterator[Callable[[str, str, str], None]]:
        """Let the verdict be what the block says (text, rule, severity): no snapshot is built meanwhile."""
        cache: SnapshotCache = self.app.extensions["tidings-snapshots"]
        wait_until(lambda: self._rests(cache), timeout=30, what="no snapshot to be in the making")

        def say(text: str, rule: str, severity: str) -> None:
            known = cache.get()
            said = {"text": text, "severity": severity, "since": None}
            news = {"v": known.version + 1, "at": datetime.now(UTC).isoformat(), "verdict": said}
            warnings = [{**said, "rule": rule, "panel": None}]
            cache._known = Snapshot({**known.document, **news, "warnings": warnings})
            self.ring()

        try:
            yield say
        finally:
            cache._fresh_until = 0.0

    def _rests(self, cache: SnapshotCache) -> bool:
        with cache._lock:
            if cache._refreshed is None:
                cache._fresh_until = math.inf
        return cache._fresh_until == math.inf

    def _begin(self) -> None:
        self.word, self.rows, self.is_busy = "first", ["a", "b", "c"], False
        self.takes_s, self.is_readable = 0.0, True

    def close(self) -> None:
        self.hub.is_alive = lambda: False
        self._server.shutdown()
        with self.app.app_context():
            db.engine.dispose()
        installed(self.app).close()
        panels.PAGES.pop("trial")

    def _add_page(self) -> None:
        def shown(view: View) -> Mapping[str, object]:
            threading.Event().wait(self.takes_s)
            if not self.is_readable:
                raise PoolTimeout
            return {"word": self.word, "rows": self.rows, "asked": view.args.get("asked", "")}

        panels.add_page(
            "trial",
            Panel("trial", "Trial", context=shown),
            Panel("trial_list", "List", context=shown),
            tab="Overview",
            is_busy=lambda _: self.is_busy,
        )

        @reads
        def trial() -> str:
            return page("trial", "monitoring/trial.html")

        self.app.add_url_rule(PATH, "monitoring.trial", trial)

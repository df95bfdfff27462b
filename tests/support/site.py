"""The web process as the Procfile starts it, over a test's stores, and a person who is signed in to it."""

import http.client
import json
import socket
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from admin.local import procfile
from admin.monitoring.sign_in.link import new_link
from tests.support.browser import SECRET_KEY
from tests.support.processes import ProcessStarter, RunningProcess
from tests.support.waiting import wait_until

CHECKOUT = Path(__file__).resolve().parents[2]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Site:
    """
    A running web process. `headers` are those of a browser that is signed in; None of them where it is not.

    Args:
        env: settings beside those of the stores.
    """

    def __init__(self, process: ProcessStarter, database_url: str, *, env: Mapping[str, str] | None = None) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        [web] = [entry for entry in procfile.read(CHECKOUT / "Procfile") if entry.name == "web"]
        settings = {
            "PORT": str(self.port),
            "WEB_BIND": "127.0.0.1",
            "SECRET_KEY": SECRET_KEY,
            "EMAIL_PROVIDER": "sandbox",
            "SMS_PROVIDER": "sandbox",
            "EMAIL_FROM": "Tidings <tidings@example.com>",
            "PUBLIC_URL": self.url,
        }
        self.process: RunningProcess = process(
            ["bash", "-c", f"exec {web.command}"],
            env={**settings, **(env or {})},
            ready=f"{self.url}/healthz",
            timeout=90.0,
            name="web",
        )
        self._database_url = database_url
        self._tables = self._empty_tables()
        self.headers: dict[str, str] = {"Accept": "text/html,*/*", "Sec-Fetch-Site": "same-origin"}
        self.headers["Cookie"] = self._sign_in()

    def sign_in_link(self) -> str:
        """Give an address that signs a browser in, once."""
        with psycopg.connect(self._database_url) as connection:
            return new_link(connection, self.url, SECRET_KEY, operator="kim")

    def _empty_tables(self) -> list[str]:
        with psycopg.connect(self._database_url) as connection:
            rows = connection.execute(
                "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'"
            ).fetchall()
            look = sql.SQL("SELECT EXISTS (SELECT FROM {})")
            filled = {
                name for (name,) in rows if connection.execute(look.format(sql.Identifier(name))).fetchone() == (True,)
            }
        return sorted({name for (name,) in rows} - filled - {"operator_session"})

    def _sign_in(self) -> str:
        with closing(self.connection()) as connection:
            connection.request("GET", self.sign_in_link().removeprefix(self.url))
            response = connection.getresponse()
            assert response.status == 302, response.read()
            return (response.headers["Set-Cookie"] or "").partition(";")[0]

    def cookie(self) -> Any:
        """Give the session as Playwright takes it."""
        name, _, value = self.headers["Cookie"].partition("=")
        return {"name": name, "value": value, "url": self.url}

    def empty(self) -> None:
        """Empty the ledger, apart from who is signed in and what the schema came with."""
        with psycopg.connect(self._database_url) as connection:
            connection.execute(sql.SQL("TRUNCATE {}").format(sql.SQL(", ").join(map(sql.Identifier, self._tables))))

    def connection(self, *, timeout: float = 10.0) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def get(self, path: str, *, timeout: float = 10.0) -> tuple[int, str]:
        """Give the status and the text of a page."""
        with closing(self.connection(timeout=timeout)) as connection:
            connection.request("GET", path, headers=self.headers)
            response = connection.getresponse()
            return response.status, response.read().decode()

    def snapshot(self) -> Any:
        """Give the snapshot's document."""
        status, text = self.get("/admin/monitoring/queues")
        assert status == 200, text
        return json.loads(text)

    def until_it_knows_now(self) -> None:
        """Wait until the snapshot is of a moment after this call: what is in the ledger now, a page shows."""
        now_ms = time.time() * 1000
        wait_until(lambda: self.snapshot()["v"] >= now_ms, timeout=30.0, what="a snapshot of now")


class OpenStream:
    """A stream that stays open; `port` is that of a proxy before the site."""

    def __init__(self, site: Site, *, port: int | None = None) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port or site.port, timeout=30.0)
        self._connection.request("GET", "/admin/monitoring/queues/events", headers=site.headers)
        self.response = self._connection.getresponse()
        self.status = self.response.status
        self.headers = self.response.headers

    def line(self) -> str:
        """Give the next line that is not empty; the empty text at the end."""
        while True:
            line = self.response.readline().decode()
            if line.strip() or not line:
                return line.strip()

    def close(self) -> None:
        self.response.close()
        self._connection.close()

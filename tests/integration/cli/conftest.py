"""The command against a real installation: gunicorn, and where a test asks for it a worker for every queue."""

import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from click.testing import CliRunner, Result

from admin.cli import connection
from admin.cli.command import main
from shared.domain.states import Mode
from shared.ledger import tenants
from shared.ledger.db import Ledger
from tests.support.processes import ProcessStarter, RunningProcess
from tests.support.scripted_http import free_port

SECRET_KEY = "a-secret-key-of-more-than-32-characters"


@dataclass
class Installation:
    """A running web process and a key of its tenant `demo`; `tidings(…)` runs the command against it."""

    url: str
    environment: dict[str, str]
    start: ProcessStarter
    ledger: Ledger

    def tidings(self, *words: str, stdin: str | bytes | None = None, **environment: str) -> Result:
        return CliRunner().invoke(main, words, input=stdin, env={**self.environment, **environment})

    def work(self) -> RunningProcess:
        """Start a worker for every queue."""
        queues = ("ingest", "email", "sms", "email_bulk", "sms_bulk", "ops")
        return self.start(
            ["dramatiq", "workers.main", "--queues", *queues, "--processes", "1", "--threads", "4"],
            env=self.environment,
            ready="ready for action",
        )

    def background(self, *words: str) -> RunningProcess:
        """Run the command in a process of its own."""
        return self.start(["python", "-m", "admin.cli", *words], env=self.environment)


Install = Callable[..., Installation]


@pytest.fixture
def install(
    process: ProcessStarter, database_url: str, redis_url: str, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> Install:
    """Start the web process with the given settings."""
    monkeypatch.setattr(connection, "LOCAL_ENV", connection.LOCAL_ENV.with_name("no-such-file"))

    def install(**settings: str) -> Installation:
        url = f"http://127.0.0.1:{free_port()}"
        with ledger.transaction() as connection:
            tenant_id = tenants.create_tenant(connection, name="demo", default_region="CA")
            _, key = tenants.create_key(connection, tenant_id=tenant_id, mode=Mode.LIVE, name="tests")
        environment = {
            "DATABASE_URL": database_url,
            "REDIS_URL": redis_url,
            "SECRET_KEY": SECRET_KEY,
            "PUBLIC_URL": url,
            "EMAIL_PROVIDER": "sandbox",
            "SMS_PROVIDER": "sandbox",
            "EMAIL_FROM": "Tidings <tidings@example.com>",
            "TIDINGS_URL": url,
            "TIDINGS_API_KEY": key,
            **settings,
        }
        bind = url.removeprefix("http://")
        process(
            [sys.executable, "-m", "gunicorn", "admin.wsgi:app", "--worker-class", "gthread", "--threads", "8",
             "--bind", bind, "--no-control-socket"],
            env=environment,
            ready=f"{url}/readyz",
            name="web",
        )  # fmt: skip
        return Installation(url, environment, process, ledger)

    return install


@pytest.fixture
def installation(install: Install) -> Installation:
    return install()

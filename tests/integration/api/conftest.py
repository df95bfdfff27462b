"""The web application over real stores, called through its WSGI door."""

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from admin.app import create_app
from admin.extensions import db, services
from shared.domain.states import Mode
from shared.ledger import tenants
from shared.ledger.db import Ledger
from shared.settings import Settings


class Api:
    """A tenant's view of the API: every call carries its key."""

    def __init__(self, client: FlaskClient, secret: str, tenant_id: int, key_id: int) -> None:
        self.client, self.secret, self.tenant_id, self.key_id = client, secret, tenant_id, key_id

    def call(self, method: str, path: str, *, headers: dict[str, str] | None = None, **more: Any) -> TestResponse:
        return self.client.open(
            f"/api/v1{path}",
            method=method,
            headers={"Authorization": f"Bearer {self.secret}", **(headers or {})},
            **more,
        )

    def get(self, path: str) -> TestResponse:
        return self.call("GET", path)

    def post(self, path: str, body: object = None, **headers: str) -> TestResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is None:
            return self.call("POST", path, headers=named)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.call("POST", path, headers=named, data=data, content_type="application/json")

    def submit(self, body: object, **headers: str) -> TestResponse:
        return self.post("/sends", body, **headers)


def make_settings(database_url: str, redis_url: str) -> Settings:
    """Settings with limits that are small enough to be met."""
    return Settings(
        database_url=database_url,  # type: ignore[arg-type]  # pydantic makes it a SecretStr
        redis_url=redis_url,  # type: ignore[arg-type]
        sms_provider="sandbox",
        api_max_body_bytes=2 * 1024 * 1024,
        api_max_faults=20,
        api_max_recipients=3_000,
        template_max_bytes=10_000,
    )


@pytest.fixture
def settings(database_url: str, redis_url: str) -> Settings:
    return make_settings(database_url, redis_url)


def release(app: Flask) -> None:
    """Let go of an application's connections."""
    with app.app_context():
        services().close()
        db.engine.dispose()


@pytest.fixture
def make_app() -> Iterator[Any]:
    made: list[Flask] = []

    def make(settings: Settings) -> Flask:
        app = create_app(settings)
        made.append(app)
        return app

    yield make
    for app in made:
        release(app)


@pytest.fixture
def app(make_app: Any, settings: Settings) -> Flask:
    made: Flask = make_app(settings)
    return made


def key_of(ledger: Ledger, name: str, *, mode: Mode = Mode.LIVE, **fields: str) -> tuple[int, int, str]:
    with ledger.transaction() as connection:
        found = tenants.find_tenant(connection, name)
        tenant_id = found.id if found else tenants.create_tenant(connection, name=name, **fields)  # type: ignore[arg-type]
        key_id, secret = tenants.create_key(connection, tenant_id=tenant_id, mode=mode, name="tests")
    return tenant_id, key_id, secret


@pytest.fixture
def api(app: Flask, ledger: Ledger) -> Api:
    tenant_id, key_id, secret = key_of(ledger, "acme", default_region="CA", email_from="Acme <news@example.com>")
    return Api(app.test_client(), secret, tenant_id, key_id)


@pytest.fixture
def other(app: Flask, ledger: Ledger) -> Api:
    tenant_id, key_id, secret = key_of(ledger, "other")
    return Api(app.test_client(), secret, tenant_id, key_id)


def email(*recipients: object, **fields: object) -> dict[str, object]:
    """A small merge e-mail; fields are those of the send."""
    rows = list(recipients) or [{"to": "jane@example.com", "params": {"name": "Jane"}}]
    return {"email": {"subject": "Hi {{ name }}", "text": "Hello {{ name }}.", "recipients": rows}, **fields}


def faults(response: TestResponse) -> dict[str, str]:
    """The faults of a refusal by pointer; the place in it is a dictionary because each has one fault here."""
    assert response.status_code == 422, response.get_data(as_text=True)
    assert response.mimetype == "application/problem+json"
    return {fault["pointer"]: fault["detail"] for fault in response.get_json()["errors"]}


def rows_stored(ledger: Ledger) -> tuple[int, ...]:
    """How many sends, deliveries, batches and idempotency keys there are."""
    with ledger.transaction() as connection:
        row = connection.execute(
            "SELECT (SELECT count(*) FROM send), (SELECT count(*) FROM delivery), (SELECT count(*) FROM batch),"
            " (SELECT count(*) FROM idempotency_key)"
        ).fetchone()
    assert row is not None
    return row


NOTHING = (0, 0, 0, 0)


@pytest.fixture
def unused_port() -> int:
    """A port that refuses connections: it was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

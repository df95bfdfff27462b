"""Keys, errors, the load-test mode, and the start of the process."""

import re
from typing import Any

import pytest
from flask import Flask

from shared.domain.states import Mode
from shared.ledger import tenants
from shared.ledger.db import Ledger
from shared.settings import Settings
from tests.integration.api.conftest import Api, email, faults
from tests.support.processes import ProcessStarter


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Basic dGlkOg==",
        "Bearer nonsense",
        "Bearer tid_live_" + "0" * 49,
        "Bearer \u00e9",
    ],
)
def test_without_a_valid_key_the_answer_is_401(app: Flask, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header}
    response = app.test_client().get("/api/v1/sends", headers=headers)
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"].startswith("Bearer")


def test_an_unknown_key_of_the_right_form_is_401(app: Flask) -> None:
    secret = tenants.new_secret(Mode.LIVE)
    response = app.test_client().get("/api/v1/sends", headers={"Authorization": f"Bearer {secret}"})
    assert response.status_code == 401


def test_a_revoked_key_is_refused_from_the_next_request_on(api: Api, ledger: Ledger) -> None:
    assert api.get("/sends").status_code == 200
    with ledger.transaction() as connection:
        assert tenants.revoke_key(connection, api.key_id)
        assert not tenants.revoke_key(connection, api.key_id)
    assert api.get("/sends").status_code == 401
    assert api.submit(email()).status_code == 401


def test_the_use_of_a_key_is_noted_at_most_once_a_minute(api: Api, ledger: Ledger) -> None:
    def last_used() -> Any:
        with ledger.transaction() as connection:
            return tenants.list_keys(connection, api.tenant_id)[0].last_used_at

    assert last_used() is None
    api.get("/sends")
    first = last_used()
    api.get("/sends")
    assert last_used() == first is not None
    with ledger.transaction() as connection:
        connection.execute("UPDATE api_key SET last_used_at = now() - interval '2 minutes'")
    api.get("/sends")
    assert last_used() > first


def test_only_a_hash_of_a_key_is_kept(api: Api, ledger: Ledger) -> None:
    with ledger.transaction() as connection:
        row = connection.execute("SELECT api_key::text, prefix, octet_length(hash) FROM api_key").fetchone()
    assert row is not None
    assert api.secret not in row[0]
    assert api.secret.startswith(row[1])
    assert (len(row[1]), row[2]) == (15, 32)


@pytest.mark.parametrize("name", ["", "  ", "x" * 201, "a\nb"])
def test_a_tenant_needs_a_name_that_can_be_shown(ledger: Ledger, name: str) -> None:
    with pytest.raises(tenants.TenantError), ledger.transaction() as connection:
        tenants.create_tenant(connection, name=name)


def test_a_tenants_name_and_region_are_checked(ledger: Ledger) -> None:
    with ledger.transaction() as connection:
        tenants.create_tenant(connection, name="acme")
    with pytest.raises(tenants.TenantError, match="already"), ledger.transaction() as connection:
        tenants.create_tenant(connection, name="acme")
    with pytest.raises(tenants.TenantError, match="capital"), ledger.transaction() as connection:
        tenants.create_tenant(connection, name="b", default_region="ca")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/api/v1/nothing", 404), ("DELETE", "/api/v1/sends", 405), ("POST", "/api/v1/sends/x", 405)],
)
def test_every_error_has_the_same_form(app: Flask, method: str, path: str, status: int) -> None:
    response = app.test_client().open(path, method=method, headers={"X-Request-Id": "abc.1-2_3"})
    body = response.get_json()
    assert (response.status_code, response.mimetype) == (status, "application/problem+json")
    assert (body["status"], body["request_id"]) == (status, "abc.1-2_3")
    assert response.headers["X-Request-Id"] == "abc.1-2_3"
    assert (status == 405) == ("Allow" in response.headers)


def test_a_request_id_that_could_forge_a_log_line_is_replaced(app: Flask) -> None:
    response = app.test_client().get("/api/v1/nothing", headers={"X-Request-Id": "a b\u00e9"})
    assert re.fullmatch(r"[0-9a-f]{32}", response.headers["X-Request-Id"])


def test_a_bug_of_ours_shows_nothing_of_itself(app: Flask) -> None:
    @app.get("/api/v1/broken")
    def broken() -> str:
        raise KeyError("secret detail")

    response = app.test_client().get("/api/v1/broken")
    assert (response.status_code, response.mimetype) == (500, "application/problem+json")
    assert "secret" not in response.get_data(as_text=True)


def test_load_test_mode_is_not_there_unless_it_is_switched_on(api: Api, app: Flask) -> None:
    assert app.test_client().post("/api/v1/loadtest/bind", json={"tenant": "x"}).status_code == 404
    assert api.post("/loadtest/bind", {"tenant": "x"}).status_code == 404


@pytest.fixture
def unbound(make_app: Any, settings: Settings, ledger: Ledger) -> Api:
    client = make_app(settings.model_copy(update={"loadtest_mode": True})).test_client()
    with ledger.transaction() as connection:
        key_id, secret = tenants.create_key(connection, tenant_id=None, mode=Mode.TEST, name="load test")
    return Api(client, secret, 0, key_id)


def test_a_credential_is_bound_once(unbound: Api, ledger: Ledger) -> None:
    assert unbound.get("/sends").status_code == 403
    assert unbound.submit(email()).status_code == 403
    assert unbound.post("/loadtest/bind", {"tenant": "load"}).get_json() == {"tenant": "load"}
    assert unbound.get("/sends").status_code == 200
    assert unbound.post("/loadtest/bind", {"tenant": "load"}).status_code == 200
    with ledger.transaction() as connection:
        tenants.create_tenant(connection, name="elsewhere")
    assert unbound.post("/loadtest/bind", {"tenant": "elsewhere"}).status_code == 409
    assert unbound.get("/sends").status_code == 200


@pytest.mark.parametrize(("body", "place"), [({}, "/tenant"), ({"tenant": " "}, "/tenant"), ({"tenant": 1}, "/tenant")])
def test_a_bind_at_fault_is_refused(unbound: Api, body: object, place: str) -> None:
    assert list(faults(unbound.post("/loadtest/bind", body))) == [place]


def test_faulty_settings_end_the_web_process_with_one_message_and_no_stack(
    process: ProcessStarter,
) -> None:
    ours = ["--config", "python:admin.serving"]  # as the Procfile has it
    running = process(
        ["python", "-m", "gunicorn", "admin.wsgi:app", *ours, "--bind", "127.0.0.1:0", "--no-control-socket"],
        env={"BATCH_SIZE": "0", "API_MAX_FAULTS": "many", "DATABASE_URL": "mysql://x", "REDIS_URL": "redis://x"},
    )
    assert running.wait() == 1
    output = running.output()
    assert all(name in output for name in ("BATCH_SIZE", "API_MAX_FAULTS", "DATABASE_URL"))
    assert output.count("BATCH_SIZE") == 1
    assert "Traceback" not in output

import io
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from werkzeug.test import TestResponse

from admin.api.outline import read_outline
from shared.ledger import idempotency
from shared.ledger.db import Ledger
from shared.settings import Settings
from tests.integration.api.conftest import Api, email, rows_stored

A, B = email(name="A"), email(name="B")
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)


def submit(api: Api, body: object, key: str = "k1") -> TestResponse:
    return api.submit(body, Idempotency_Key=key)


def hold(ledger: Ledger, api: Api, body: object, *, lock: timedelta = MINUTE, key: str = "k1") -> idempotency.Claim:
    """The claim of a request that is still running."""
    fingerprint = read_outline(io.BytesIO(json.dumps(body).encode()), fingerprint=True).fingerprint
    assert fingerprint is not None
    claim = idempotency.Claim(api.tenant_id, key, uuid4())
    with ledger.transaction() as connection:
        assert idempotency.claim(connection, claim, fingerprint=fingerprint, lock=lock, ttl=DAY) is None
    return claim


def test_a_repeat_gets_the_first_answer_and_makes_no_second_send(api: Api, ledger: Ledger) -> None:
    first = submit(api, A)
    again = submit(api, A)
    assert (first.status_code, again.status_code) == (202, 202)
    assert again.get_json() == first.get_json()
    assert "Idempotent-Replayed" not in first.headers
    assert again.headers["Idempotent-Replayed"] == "true"
    assert rows_stored(ledger) == (1, 1, 1, 1)


def test_other_white_space_and_key_order_are_the_same_body(api: Api) -> None:
    first = submit(api, A)
    reordered = json.dumps(dict(reversed(A.items())), indent=4).encode()
    assert submit(api, reordered).get_json() == first.get_json()


def test_the_same_key_with_another_body_is_refused_also_while_the_first_runs(api: Api, ledger: Ledger) -> None:
    submit(api, A)
    assert submit(api, B).status_code == 422
    assert submit(api, B).get_json()["type"].endswith("#idempotency-key-reused")
    hold(ledger, api, A, key="k2")
    assert submit(api, B, key="k2").status_code == 422
    assert rows_stored(ledger)[0] == 1


def test_the_same_body_while_the_first_runs_is_409_with_a_time_to_come_back(api: Api, ledger: Ledger) -> None:
    claim = hold(ledger, api, A)
    response = submit(api, A)
    assert response.status_code == 409
    assert int(response.headers["Retry-After"]) > 0
    with ledger.transaction() as connection:
        idempotency.release(connection, claim)
    assert submit(api, A).status_code == 202


def test_many_at_once_make_one_send(api: Api, ledger: Ledger) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: submit(api, A), range(16)))
    assert {answer.status_code for answer in answers} <= {202, 409}
    assert len({answer.get_json()["id"] for answer in answers if answer.status_code == 202}) == 1
    assert rows_stored(ledger) == (1, 1, 1, 1)


def test_a_refused_submission_does_not_use_its_key_up(api: Api, ledger: Ledger) -> None:
    assert submit(api, email({"to": "nobody@"})).status_code == 422
    assert submit(api, b"{").status_code == 400
    assert submit(api, A).status_code == 202
    assert rows_stored(ledger)[3] == 1


def test_a_request_that_died_is_taken_over_when_its_claim_has_lapsed(api: Api, ledger: Ledger) -> None:
    dead = hold(ledger, api, A, lock=timedelta(0))
    assert submit(api, A).status_code == 202
    with pytest.raises(idempotency.ClaimLostError), ledger.transaction() as connection:
        idempotency.answer(connection, dead, send_id=uuid4(), body={})
    assert rows_stored(ledger) == (1, 1, 1, 1)


def test_an_old_key_is_forgotten(api: Api, ledger: Ledger) -> None:
    submit(api, A)
    with ledger.transaction() as connection:
        connection.execute("UPDATE idempotency_key SET created_at = now() - interval '25 hours'")
    assert submit(api, B).status_code == 202
    with ledger.transaction() as connection:
        connection.execute("UPDATE idempotency_key SET created_at = now() - interval '25 hours'")
        assert idempotency.forget(connection, ttl=DAY, limit=10) == 1
    assert rows_stored(ledger)[3] == 0


def test_keys_of_two_tenants_do_not_meet(api: Api, other: Api, make_app: Any, settings: Settings) -> None:
    app = make_app(settings.model_copy(update={"email_from": "x@example.com"}))
    api.client = other.client = app.test_client()
    first, second = submit(api, A), submit(other, A)
    assert first.get_json()["id"] != second.get_json()["id"]


def test_a_replay_does_not_validate_again(api: Api, ledger: Ledger) -> None:
    body = email(valid_until="2030-01-01T00:00:00Z")
    first = submit(api, body)
    with ledger.transaction() as connection:
        connection.execute("UPDATE tenant SET email_from = 'not a sender'")
    assert submit(api, body).get_json() == first.get_json()


@pytest.mark.parametrize("key", ["", "x" * 256, "with space", "tab\tx", "é", "nul\0"])
def test_a_key_that_is_no_key_is_400(api: Api, ledger: Ledger, key: str) -> None:
    response = api.client.post(
        "/api/v1/sends",
        data=json.dumps(A),
        content_type="application/json",
        headers={"Authorization": f"Bearer {api.secret}"},
        environ_overrides={"HTTP_IDEMPOTENCY_KEY": key.encode("utf-8").decode("latin-1")},
    )
    assert response.status_code == 400
    assert rows_stored(ledger)[0] == 0


def test_the_longest_key_is_taken(api: Api) -> None:
    assert submit(api, A, key="~" * 255).status_code == 202

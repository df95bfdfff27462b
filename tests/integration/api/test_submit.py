import json
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis
from flask import Flask

from admin.api import turns
from admin.extensions import installed
from shared.domain.states import Mode
from shared.jobs import QueueName
from shared.ledger.db import Ledger
from shared.settings import Settings
from tests.integration.api.conftest import Api, email, faults, key_of, rows_stored
from tests.support.ledger_clock import LedgerClock
from tests.support.read_only import read_only
from tests.support.waiting import wait_until


def stored(ledger: Ledger, columns: str = "row_no, channel, status, address, params, reference, segments") -> list[Any]:
    with ledger.transaction() as connection:
        return connection.execute(f"SELECT {columns} FROM delivery ORDER BY row_no").fetchall()


def the_send(ledger: Ledger) -> dict[str, Any]:
    with ledger.transaction() as connection:
        cursor = connection.execute("SELECT * FROM send")
        row = cursor.fetchone()
        assert row is not None
        assert cursor.description is not None
        return {column.name: value for column, value in zip(cursor.description, row, strict=True)}


BOTH = {
    "name": "Spring",
    "params": {"Shop Name": "Acme"},
    "email": {
        "subject": "{{ shop_name }}",
        "html": "<p>{{ name }} {{ price }}</p>",
        "reply_to": '"Doe, Jane" <jane@example.com>',
        "recipients": [
            {"to": "Jane@EXAMPLE.com", "params": {"name": "Jané\n\t\\x", "price": 1.10}, "reference": "r\t1"},
            {"to": "jane@bücher.example.com", "params": {"name": "B", "price": 0, "vip": False}},
            {"to": "JANE@example.com", "params": {"name": "again", "price": 2}},
        ],
    },
    "sms": {
        "text": "Code {{ code | default('none') }}",
        "recipients": [{"to": "(604) 555-0123", "params": {"code": "€"}}, {"to": "+16045550124"}],
    },
}


def test_a_send_over_both_channels_is_stored_as_it_will_be_worked_on(api: Api, ledger: Ledger, redis_url: str) -> None:
    response = api.submit(json.dumps(BOTH).replace("1.1", "1.10").encode())
    assert response.status_code == 202
    body = response.get_json()
    assert body["accepted"] == {"email": 2, "sms": 2}
    assert body["duplicates"] == {"email": 1, "sms": 0}
    assert body["invalid"] == {"email": 0, "sms": 0}
    assert body["segments"] == 2
    assert (body["status"], body["mode"], body["notes"]) == ("pending", "live", [])
    assert stored(ledger) == [
        (1, "email", "owed", "Jane@example.com", {"name": "Jané\n\t\\x", "price": "1.10"}, "r\t1", None),
        (2, "email", "owed", "jane@xn--bcher-kva.example.com", {"name": "B", "price": 0, "vip": False}, None, None),
        (3, "sms", "owed", "+16045550123", {"code": "€"}, None, 1),
        (4, "sms", "owed", "+16045550124", None, None, 1),
    ]
    send = the_send(ledger)
    assert str(send["id"]) == body["id"]
    assert send["content"] == {
        "email": {
            "from": '"Acme" <news@example.com>',
            "reply_to": '"Doe, Jane" <jane@example.com>',
            "subject": "{{ shop_name }}",
            "text": None,
            "html": "<p>{{ name }} {{ price }}</p>",
        },
        "sms": {"from": None, "text": "Code {{ code | default('none') }}"},
    }
    assert send["params"] == {"shop_name": "Acme"}
    assert (send["name"], send["lane"], send["accepted"], send["duplicates"], send["segments"]) == (
        "Spring",
        "single",
        {"email": 2, "sms": 2},
        {"email": 1},
        2,
    )
    with redis.Redis.from_url(redis_url) as client:
        [raw] = client.hvals(f"tidings:broker:{QueueName.INGEST}.msgs")
    assert json.loads(raw)["kwargs"]["send_id"] == body["id"]


def test_batches_are_cut_per_channel_and_numbered_on(api: Api, ledger: Ledger) -> None:
    mails = [{"to": f"r{number}@example.com"} for number in range(60)]
    texts = [{"to": f"+1604555{number:04}"} for number in range(100, 126)]
    body = {
        "email": {"subject": "s", "text": "t", "recipients": mails},
        "sms": {"text": "t", "recipients": texts},
    }
    assert api.submit(body).status_code == 202
    with ledger.transaction() as connection:
        rows = connection.execute(
            "SELECT batch_no, channel, first_row, last_row, owed, due_at <= now(), settled_at FROM batch ORDER BY 1"
        ).fetchall()
    assert rows == [
        (1, "email", 1, 25, 25, True, None),
        (2, "email", 26, 50, 25, True, None),
        (3, "email", 51, 60, 10, True, None),
        (4, "sms", 61, 85, 25, True, None),
        (5, "sms", 86, 86, 1, True, None),
    ]
    assert the_send(ledger)["lane"] == "bulk"


def test_an_urgent_send_takes_the_single_lane_whatever_its_size(api: Api, ledger: Ledger) -> None:
    rows = [{"to": f"r{number}@example.com", "params": {"name": "n"}} for number in range(100)]
    assert api.submit(email(*rows, urgent=True)).status_code == 202
    assert the_send(ledger)["lane"] == "single"


def test_the_order_of_the_document_does_not_matter(api: Api, ledger: Ledger) -> None:
    body = {
        "sms": {"recipients": [{"params": {"code": "1"}, "to": "+16045550123"}], "text": "{{ code }}"},
        "email": {"recipients": [{"to": "a@example.com"}], "text": "t", "subject": "s"},
    }
    assert api.submit(body).status_code == 202
    assert stored(ledger, "row_no, channel") == [(1, "email"), (2, "sms")]


def test_what_a_test_key_submits_is_marked_so(api: Api, ledger: Ledger) -> None:
    api.secret = key_of(ledger, "acme", mode=Mode.TEST)[2]
    assert api.submit(email()).get_json()["mode"] == "test"
    assert the_send(ledger)["mode"] == "test"


def test_without_redis_a_send_is_owed_all_the_same(
    make_app: Any, settings: Settings, ledger: Ledger, api: Api, unused_port: int
) -> None:
    away = settings.model_copy(update={"redis_url": type(settings.redis_url)(f"redis://127.0.0.1:{unused_port}/0")})
    api.client = make_app(away).test_client()
    response = api.submit(email())
    assert response.status_code == 202
    assert the_send(ledger)["status"] == "pending"


def test_without_postgres_the_answer_is_503_and_says_when_to_come_back(
    make_app: Any, settings: Settings, api: Api, unused_port: int
) -> None:
    url = f"postgresql://tidings@127.0.0.1:{unused_port}/tidings"
    away = settings.model_copy(update={"database_url": type(settings.database_url)(url)})
    client = make_app(away).test_client()
    response = client.post("/api/v1/sends", headers={"Authorization": f"Bearer {api.secret}"}, json=email())
    assert response.status_code == 503
    assert response.mimetype == "application/problem+json"
    assert int(response.headers["Retry-After"]) > 0
    assert "127.0.0.1" not in response.get_data(as_text=True)


def test_a_ledger_that_takes_no_writes_is_503_and_uses_no_key_up(api: Api, database_url: str) -> None:
    with read_only(database_url):
        assert api.submit(email(), Idempotency_Key="once").status_code == 503
    # The connections of before may have been cut, and be found so one by one.
    wait_until(lambda: api.submit(email(), Idempotency_Key="once").status_code == 202)


def test_a_time_in_the_past_is_taken_said_and_echoed_in_utc(api: Api) -> None:
    past = datetime.now(UTC) - timedelta(days=1)
    body = api.submit(email(send_at=past.astimezone().isoformat())).get_json()
    assert body["notes"] == ["send_at is in the past: the send begins at once"]
    assert datetime.fromisoformat(body["send_at"]) == past
    assert body["send_at"].endswith("Z")


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"send_at": "2027-03-28T09:00:00"}, "/send_at"),
        ({"send_at": "2126-01-01T00:00:00Z"}, "/send_at"),
        ({"valid_until": "2025-01-01T00:00:00Z"}, "/valid_until"),
        ({"send_at": "2027-03-28T09:00:00Z", "valid_until": "2027-03-28T09:00:00Z"}, "/valid_until"),
    ],
)
def test_times_that_make_no_sense_are_refused(api: Api, ledger: Ledger, fields: dict[str, str], place: str) -> None:
    assert list(faults(api.submit(email(**fields)))) == [place]
    assert rows_stored(ledger)[0] == 0


def test_skip_stores_bad_rows_as_failed_with_their_masked_reason_and_the_books_hold(api: Api, ledger: Ledger) -> None:
    rows: list[object] = [{"to": f"r{number}@example.com", "params": {"name": "n"}} for number in range(30)]
    rows[3] = {"to": "jane.doe@", "params": {"name": "x"}, "reference": "ref-3"}
    rows[4] = {"to": "x\0y@example.com", "params": {"name": "x"}, "reference": "r\ud83d"}
    rows[5] = {"to": "nameless@example.com"}
    rows[6] = "someone@example.com"
    rows[7] = {"to": "jane.doe@example.com <jane.doe@example.com>", "params": {"name": "x"}}
    body = api.submit(email(*rows, on_invalid="skip")).get_json()
    assert (body["accepted"]["email"], body["invalid"]["email"]) == (30, 5)
    failed = [
        row
        for row in stored(ledger, "row_no, status, address, reference, last_error, settled_at")
        if row[1] == "failed"
    ]
    assert [row[0] for row in failed] == [4, 5, 6, 7, 8]
    assert [row[3] for row in failed] == ["ref-3", "r?", None, None, None]
    assert all(row[5] is not None for row in failed)
    assert failed[2][4] == "params: lacks name, which the template needs"
    assert failed[1][2] == "x�y@example.com"
    assert not any("jane.doe" in row[4] for row in failed)
    with ledger.transaction() as connection:
        assert connection.execute("SELECT owed, failed FROM batch ORDER BY batch_no").fetchall() == [(20, 5), (5, 0)]
    books = api.get(f"/sends/{body['id']}").get_json()["books"]["email"]
    assert (books["accepted"], books["failed"], books["owed"], books["unaccounted"]) == (30, 5, 25, 0)


def test_a_batch_of_nothing_but_bad_rows_is_settled_at_once(api: Api, ledger: Ledger) -> None:
    rows = [{"to": "nobody@"} for _ in range(26)]
    body = api.submit(email(*rows, on_invalid="skip")).get_json()
    assert body["invalid"]["email"] == 26
    with ledger.transaction() as connection:
        batches = connection.execute("SELECT owed, failed, due_at, settled_at IS NOT NULL FROM batch").fetchall()
    assert sorted(batches) == [(0, 1, None, True), (0, 25, None, True)]


def test_a_bad_row_does_not_make_a_later_good_one_a_duplicate(api: Api) -> None:
    rows = [{"to": "jane@example.com"}, {"to": "jane@example.com", "params": {"name": "Jane"}}]
    body = api.submit(email(*rows, on_invalid="skip")).get_json()
    assert (body["accepted"]["email"], body["duplicates"]["email"], body["invalid"]["email"]) == (2, 0, 1)


def test_four_spellings_of_a_number_are_one_recipient(api: Api, ledger: Ledger) -> None:
    spellings = ["+1 604 555 0123", "(604) 555-0123", "1-604-555-0123", "604.555.0123", "tel:+16045550123"]
    body = {"sms": {"text": "t", "recipients": [{"to": spelling} for spelling in spellings]}}
    answer = api.submit(body).get_json()
    assert (answer["accepted"]["sms"], answer["duplicates"]["sms"]) == (1, 4)
    assert stored(ledger, "address") == [("+16045550123",)]


def test_segments_are_counted_for_each_recipient_and_summed(api: Api, ledger: Ledger) -> None:
    texts = ["a" * 160, "a" * 161, "Ŵ" * 71, "{" * 69 + "Ŵ", "a" * 159 + "€"]
    rows = [{"to": f"+1604555010{number}", "params": {"t": text}} for number, text in enumerate(texts)]
    answer = api.submit({"sms": {"text": "{{ t }}", "recipients": rows}}).get_json()
    assert stored(ledger, "segments") == [(1,), (2,), (2,), (1,), (2,)]
    assert answer["segments"] == 8


@pytest.mark.parametrize(("provider", "limit"), [("twilio", 1_600), ("acs", 2_048), ("none", 1_600)])
def test_a_text_longer_than_its_provider_takes_is_refused(
    make_app: Any, settings: Settings, api: Api, provider: str, limit: int
) -> None:
    api.client = make_app(settings.model_copy(update={"sms_provider": provider})).test_client()

    def body(length: int) -> object:
        return {"sms": {"text": "{{ t }}", "recipients": [{"to": "+16045550123", "params": {"t": "a" * length}}]}}

    assert api.submit(body(limit)).status_code == 202
    assert list(faults(api.submit(body(limit + 1)))) == ["/sms/recipients/0"]


def test_senders_fall_back_to_the_tenants_then_to_the_installations(
    make_app: Any, settings: Settings, ledger: Ledger, other: Api
) -> None:
    assert list(faults(other.submit(email()))) == ["/email/from"]
    with_default = settings.model_copy(update={"email_from": "Tidings <no-reply@example.com>"})
    other.client = make_app(with_default).test_client()
    assert other.submit(email()).status_code == 202
    assert the_send(ledger)["content"]["email"]["from"] == '"Tidings" <no-reply@example.com>'


def test_what_is_refused_at_acceptance_failed_by_the_ledgers_clock_and_not_the_web_process_own(
    make_app: Any, settings: Settings, ledger: Ledger, database_url: str
) -> None:
    LedgerClock(database_url, off_by="-1 hour")
    tenant_id, key_id, secret = key_of(ledger, "acme", email_from="Acme <news@example.com>")
    api = Api(make_app(settings).test_client(), secret, tenant_id, key_id)
    assert api.submit(email({"to": "nobody"}, on_invalid="skip")).status_code == 202
    with ledger.autocommit() as connection:
        hours = "round(extract(epoch FROM settled_at - pg_catalog.now()) / 3600)::int"
        assert connection.execute(f"SELECT status, {hours} FROM delivery").fetchall() == [("failed", -1)]


def test_a_long_submission_is_stored_whole(api: Api, ledger: Ledger) -> None:
    rows = [{"to": f"r{number}@example.com", "params": {"name": f"n{number}"}} for number in range(3_000)]
    answer = api.submit(email(*rows)).get_json()
    assert answer["accepted"]["email"] == 3_000
    assert rows_stored(ledger)[:3] == (1, 3_000, 120)
    assert stored(ledger, "params->>'name'")[2_999] == ("n2999",)


def test_a_body_with_a_byte_order_mark_is_taken(api: Api) -> None:
    response = api.submit(b"\xef\xbb\xbf" + json.dumps(email()).encode(), Idempotency_Key="marked")
    assert response.status_code == 202
    assert response.get_json()["accepted"]["email"] == 1


def test_large_submissions_take_turns_and_hold_up_no_small_one(
    api: Api, app: Flask, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "_PATIENCE_S", 0.05)
    space = b" " * (1024 * 1024)
    large, bad = space + json.dumps(email()).encode(), space + b'{"email": {}}'
    free = installed(app).large_submissions
    for _ in range(3):  # more often than there are turns: each is given back, also by what is refused
        assert api.submit(large).status_code == 202
        assert api.submit(bad).status_code == 422
    before = rows_stored(ledger)
    with ExitStack() as stack:
        while free.acquire(blocking=False):
            stack.callback(free.release)
        refused = api.submit(large)
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "2")
        assert "Other large submissions are being stored" in refused.get_json()["detail"]
        assert rows_stored(ledger) == before
        assert api.submit(email()).status_code == 202
    assert api.submit(large).status_code == 202

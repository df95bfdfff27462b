import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from shared.accounts import credential_of, provider_name
from shared.coordination.gate import Gate
from shared.coordination.redis import RedisLink
from shared.domain.states import Channel, Mode
from shared.ledger import cancelling, sends
from shared.ledger.db import Ledger
from shared.settings import Settings
from tests.integration.api.conftest import Api, email, faults
from tests.support.waiting import wait_until

TOMORROW = (datetime.now(UTC) + timedelta(days=1)).replace(microsecond=0)


def submitted(api: Api, count: int = 1, **fields: object) -> str:
    rows = [{"to": f"r{number}@example.com", "params": {"name": "n"}} for number in range(count)]
    response = api.submit(email(*rows, **fields))
    assert response.status_code == 202, response.get_json()
    identity: str = response.get_json()["id"]
    return identity


def put(ledger: Ledger, send: str, changes: str) -> None:
    with ledger.transaction() as connection:
        connection.execute(f"UPDATE send SET {changes} WHERE id = %s", [send])


def test_a_new_send_is_shown_with_balanced_books(api: Api) -> None:
    send = submitted(api, 3, name="Spring")
    view = api.get(f"/sends/{send}").get_json()
    assert (view["status"], view["name"], view["accepted"]) == ("pending", "Spring", {"email": 3, "sms": 0})
    books = view["books"]["email"]
    assert (books["accepted"], books["owed"], books["waiting"], books["unaccounted"]) == (3, 3, 3, 0)
    assert list(view["books"]) == ["email"]


def test_books_are_broken_down_and_any_difference_shows(api: Api, ledger: Ledger) -> None:
    send = submitted(api, 60)
    with ledger.transaction() as connection:
        connection.execute(
            "UPDATE batch SET owed = 1, sending = 2, retrying = 3, sent = 4, failed = 5, dead_lettered = 1, unsure = 2,"
            " suppressed = 3, cancelled = 2, expired = 2 WHERE send_id = %s AND batch_no = 1",
            [send],
        )
        connection.execute("UPDATE send SET accepted = '{\"email\": 61}' WHERE id = %s", [send])
    books = api.get(f"/sends/{send}").get_json()["books"]["email"]
    assert books == {
        "accepted": 61,
        "sent": 4,
        "failed": 5,
        "dead_lettered": 1,
        "suppressed": 3,
        "cancelled": 2,
        "expired": 2,
        "unsure": 2,
        "discarded": 0,
        "owed": 41,
        "waiting": 36,
        "sending": 2,
        "retrying": 3,
        "proving": 0,
        "owed_where": {
            **dict.fromkeys(("gate", "circuit", "isolated", "hold", "cap", "paused", "scheduled", "proving"), 0),
            "ready": 36,
            "in_hand": 2,
            "backoff": 3,
            "backoff_until": None,
        },
        "unaccounted": 1,
    }


def test_what_is_owed_says_what_it_waits_for(api: Api, ledger: Ledger) -> None:
    send = submitted(api, 3)

    def where() -> dict[str, int]:
        parts = api.get(f"/sends/{send}").get_json()["books"]["email"]["owed_where"]
        return {name: count for name, count in parts.items() if count}

    assert where() == {"ready": 3}
    put(ledger, send, "status = 'scheduled', send_at = now() + interval '1 hour'")
    assert where() == {"scheduled": 3}
    put(ledger, send, "status = 'paused', paused_at = now()")
    assert where() == {"paused": 3}


def test_totals_written_down_stand_in_once_the_rows_are_gone(api: Api, ledger: Ledger) -> None:
    send = submitted(api, 2)
    put(
        ledger,
        send,
        "status = 'completed', started_at = now(), completed_at = now(), settled_counts = "
        """'{"email": {"sent": 1, "failed": 1, "dead_lettered": 0, "unsure": 0, "suppressed": 0}}'""",
    )
    with ledger.transaction() as connection:
        connection.execute("DELETE FROM batch")
    books = api.get(f"/sends/{send}").get_json()["books"]["email"]
    assert (books["sent"], books["failed"], books["owed"], books["unaccounted"]) == (1, 1, 0, 0)


def test_books_of_40_000_batches_take_milliseconds(api: Api, ledger: Ledger) -> None:
    with ledger.transaction() as connection:
        send = UUID(submitted(api))
        connection.execute(
            "INSERT INTO batch (send_id, batch_no, channel, first_row, last_row, owed)"
            " SELECT %s, n, 'email', 2 + (n - 2) * 25, 1 + (n - 1) * 25, 25 FROM generate_series(2, 40000) n",
            [send],
        )
        connection.execute("UPDATE send SET accepted = '{\"email\": 999976}'")
    with ledger.transaction() as connection:
        connection.execute("ANALYZE batch")
        found = sends.find(connection, tenant_id=api.tenant_id, send_id=send)
        assert found is not None
        assert sum(books.unaccounted for books in found.books.values()) == 0

        def is_quick() -> bool:
            started = time.perf_counter()
            sends.find(connection, tenant_id=api.tenant_id, send_id=send)
            return time.perf_counter() - started < 0.1

        # About 15 ms on a quiet machine; on a busy one it may take some tries to have a processor to oneself.
        wait_until(is_quick, timeout=60, what="a read within a tenth of a second")


def test_the_pace_says_how_long_it_will_take(api: Api, ledger: Ledger) -> None:
    send = submitted(api, 25)
    put(ledger, send, "status = 'sending', queued_at = now(), started_at = now() - interval '100 seconds'")
    assert api.get(f"/sends/{send}").get_json()["seconds_left"] is None
    with ledger.transaction() as connection:
        connection.execute("UPDATE batch SET owed = 5, sent = 20")
    assert api.get(f"/sends/{send}").get_json()["seconds_left"] in range(24, 28)
    with ledger.transaction() as connection:
        connection.execute("UPDATE batch SET due_at = now() + interval '5 minutes'")
    assert api.get(f"/sends/{send}").get_json()["seconds_left"] is None, "what is left waits for its time"
    with ledger.transaction() as connection:
        connection.execute("UPDATE batch SET due_at = now()")
    put(ledger, send, "resumed_at = now()")
    assert api.get(f"/sends/{send}").get_json()["seconds_left"] is None


def test_no_time_is_told_while_the_provider_is_held_back(api: Api, ledger: Ledger, settings: Settings) -> None:
    send = submitted(api, 25)
    put(ledger, send, "status = 'sending', queued_at = now(), started_at = now() - interval '100 seconds'")
    with ledger.transaction() as connection:
        connection.execute("UPDATE batch SET owed = 5, sent = 20")
    assert api.get(f"/sends/{send}").get_json()["seconds_left"] is not None
    name = provider_name(settings, Channel.EMAIL, Mode.LIVE)
    with closing(RedisLink(settings.redis_url.get_secret_value())) as link:
        Gate(link, provider=name, credential=credential_of(settings, name), namespace=settings.redis_namespace).close(
            60.0
        )
    view = api.get(f"/sends/{send}").get_json()
    assert (view["seconds_left"], view["books"]["email"]["owed_where"]["gate"]) == (None, 5)


def test_the_list_is_paged_newest_first_and_filtered(api: Api, other: Api, ledger: Ledger) -> None:
    made = [submitted(api) for _ in range(5)]
    put(ledger, made[1], "status = 'paused', paused_at = now()")
    put(ledger, made[3], "status = 'paused', paused_at = now()")
    seen, cursor = [], ""
    while True:
        page = api.get(f"/sends?limit=2{cursor}").get_json()
        seen += [send["id"] for send in page["sends"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert seen == made[::-1]
    paused = api.get("/sends?status=paused").get_json()
    assert [send["id"] for send in paused["sends"]] == [made[3], made[1]]
    assert other.get("/sends").get_json() == {"sends": [], "next_cursor": None}


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=1001",
        "limit=x",
        "limit=1&limit=2",
        "status=no",
        "cursor=!!",
        "cursor=AAAA",
        "page=2",
        "cursor=%00",
    ],
)
def test_a_query_at_fault_is_422(api: Api, query: str) -> None:
    response = api.get(f"/sends?{query}")
    assert (response.status_code, response.mimetype) == (422, "application/problem+json")


def test_a_send_is_moved_before_it_begins(api: Api) -> None:
    send = submitted(api, send_at=TOMORROW.isoformat())
    later = TOMORROW + timedelta(days=1)
    response = api.call("PATCH", f"/sends/{send}", json={"send_at": later.isoformat()})
    assert response.status_code == 200
    assert datetime.fromisoformat(response.get_json()["send_at"]) == later
    at_once = api.call("PATCH", f"/sends/{send}", json={"send_at": None}).get_json()
    assert datetime.fromisoformat(at_once["send_at"]) <= datetime.now(UTC)


@pytest.mark.parametrize("status", ["sending", "completed", "cancelled"])
def test_a_send_that_has_begun_or_is_over_is_not_moved(api: Api, ledger: Ledger, status: str) -> None:
    send = submitted(api)
    stamp = {"sending": "started_at", "completed": "started_at = now(), completed_at", "cancelled": "cancelled_at"}
    put(ledger, send, f"status = '{status}', {stamp[status]} = now()")
    response = api.call("PATCH", f"/sends/{send}", json={"send_at": TOMORROW.isoformat()})
    assert response.status_code == 409
    assert status in response.get_json()["detail"]


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"send_at": "2027-01-01T00:00:00"}, "/send_at"),
        ({}, "/send_at"),
        ({"send_at": None, "name": "x"}, "/name"),
        ({"send_at": "2031-01-01T00:00:00Z"}, "/send_at"),
    ],
)
def test_a_move_at_fault_is_refused(api: Api, body: object, place: str) -> None:
    send = submitted(api, valid_until="2030-01-01T00:00:00Z")
    assert list(faults(api.call("PATCH", f"/sends/{send}", json=body))) == [place]


def test_a_small_send_is_cancelled_wholly_before_the_answer(api: Api, ledger: Ledger) -> None:
    send = submitted(api, 60, send_at=TOMORROW.isoformat())
    view = api.post(f"/sends/{send}/cancel").get_json()
    assert view["status"] == "cancelled"
    books = view["books"]["email"]
    assert (books["cancelled"], books["owed"], books["unaccounted"]) == (60, 0, 0)
    with ledger.transaction() as connection:
        row = connection.execute("SELECT settled_counts->'email'->>'cancelled' FROM send").fetchone()
        rest = connection.execute("SELECT count(*) FROM delivery WHERE status <> 'cancelled'").fetchone()
    assert (row, rest) == (("60",), (0,))


def test_a_large_send_is_stopped_at_once_and_swept_by_due_work(api: Api, ledger: Ledger) -> None:
    send = submitted(api, 1_001)
    view = api.post(f"/sends/{send}/cancel").get_json()
    assert view["status"] == "cancelled"
    assert view["books"]["email"]["owed"] == 1_001


def test_cancelling_leaves_calls_in_flight_to_end(api: Api, ledger: Ledger) -> None:
    send = submitted(api, 3)
    with ledger.transaction() as connection:
        connection.execute(
            "UPDATE delivery SET status = 'sending', claim_id = gen_random_uuid() WHERE send_id = %s AND row_no = 1",
            [send],
        )
        connection.execute("UPDATE batch SET owed = 2, sending = 1 WHERE send_id = %s", [send])
    books = api.post(f"/sends/{send}/cancel").get_json()["books"]["email"]
    assert (books["cancelled"], books["sending"], books["unaccounted"]) == (2, 1, 0)


def test_cancelling_twice_is_the_same_and_a_finished_send_is_409(api: Api, ledger: Ledger) -> None:
    send = submitted(api)
    first = api.post(f"/sends/{send}/cancel").get_json()
    assert api.post(f"/sends/{send}/cancel").get_json() == first
    done = submitted(api)
    put(ledger, done, "status = 'completed', started_at = now(), completed_at = now()")
    for action in ("cancel", "pause", "resume"):
        assert api.post(f"/sends/{done}/{action}").status_code == 409
    for action in ("pause", "resume"):
        assert api.post(f"/sends/{send}/{action}").status_code == 409


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("status = 'pending'", "queued"),
        ("status = 'queued', queued_at = now()", "queued"),
        ("status = 'scheduled', send_at = now() + interval '1 hour', queued_at = now()", "scheduled"),
        ("status = 'scheduled', send_at = now() - interval '1 second', queued_at = now()", "queued"),
        ("status = 'sending', started_at = now(), queued_at = now()", "sending"),
    ],
)
def test_a_paused_send_returns_to_where_it_belongs(api: Api, ledger: Ledger, before: str, after: str) -> None:
    send = submitted(api)
    put(ledger, send, before)
    paused = api.post(f"/sends/{send}/pause").get_json()
    assert (paused["status"], paused["pause_reason"]) == ("paused", "paused through the API")
    assert api.post(f"/sends/{send}/pause").get_json() == paused
    resumed = api.post(f"/sends/{send}/resume").get_json()
    assert (resumed["status"], resumed["paused_at"], resumed["pause_reason"]) == (after, None, None)
    assert api.post(f"/sends/{send}/resume").get_json()["status"] == after


def test_a_tenant_is_told_why_an_operator_paused_its_send_and_not_who(api: Api, ledger: Ledger) -> None:
    send = submitted(api)
    with ledger.transaction() as connection:
        [(tenant_id,)] = connection.execute("SELECT tenant_id FROM send").fetchall()
        assert sends.pause(connection, tenant_id=tenant_id, send_id=UUID(send), reason="wrong list", operator="Kim Wu")
    shown = api.get(f"/sends/{send}")
    assert shown.get_json()["pause_reason"] == "wrong list"
    assert "Kim" not in shown.text


def test_a_tenant_cannot_resume_what_an_operator_is_cancelling(api: Api, ledger: Ledger) -> None:
    send = submitted(api)
    with ledger.transaction() as connection:
        assert cancelling.begin(connection, UUID(send), operator="Kim Wu", reason="wrong list")
    refused = api.post(f"/sends/{send}/resume")
    assert refused.status_code == 409
    assert "is being cancelled by an operator" in refused.get_json()["detail"]
    with ledger.transaction() as connection:
        assert cancelling.undo(connection, UUID(send)) is not None
    put(ledger, send, "status = 'paused', paused_at = now(), cancel_asked_at = now() - interval '1 hour'")
    assert api.post(f"/sends/{send}/resume").get_json()["status"] == "queued"


def test_another_tenants_send_does_not_exist_for_anybody_else(api: Api, other: Api) -> None:
    send = submitted(api)
    assert other.get(f"/sends/{send}").status_code == 404
    assert other.get(f"/sends/{send}/deliveries").status_code == 404
    assert other.get(f"/deliveries/{send}.1").status_code == 404
    assert other.call("PATCH", f"/sends/{send}", json={"send_at": None}).status_code == 404
    for action in ("cancel", "pause", "resume"):
        assert other.post(f"/sends/{send}/{action}").status_code == 404
    assert api.get(f"/sends/{send}").get_json()["status"] == "pending"


@pytest.mark.parametrize(
    "identity", ["x", "0", "%00", "01a22d31c9cf7ebb969ae8dd6d2615e8", "é", "{01a22d31-c9cf-7ebb-969a-e8dd6d2615e8}"]
)
def test_an_id_that_is_none_is_404(api: Api, identity: str) -> None:
    assert api.get(f"/sends/{identity}").status_code == 404
    assert api.get(f"/deliveries/{identity}.1").status_code == 404
    assert api.get(f"/deliveries/{identity}").status_code == 404


def test_deliveries_are_paged_in_order_and_filtered_by_status(api: Api, ledger: Ledger) -> None:
    send = submitted(api, 120)
    with ledger.transaction() as connection:
        connection.execute(
            "UPDATE delivery SET status = 'sent', settled_at = now() WHERE send_id = %s AND row_no IN (3, 26, 27, 110)",
            [send],
        )
        connection.execute(
            "UPDATE batch b SET sent = n, owed = owed - n FROM (VALUES (1, 1), (2, 2), (5, 1)) AS v (no, n)"
            " WHERE b.send_id = %s AND b.batch_no = v.no",
            [send],
        )

    def walk(query: str) -> list[int]:
        seen: list[int] = []
        cursor = ""
        while True:
            page: dict[str, Any] = api.get(f"/sends/{send}/deliveries?{query}{cursor}").get_json()
            seen += [int(delivery["id"].rpartition(".")[2]) for delivery in page["deliveries"]]
            if page["next_cursor"] is None:
                return seen
            cursor = f"&cursor={page['next_cursor']}"

    assert walk("limit=50") == list(range(1, 121))
    assert walk("status=sent&limit=1") == [3, 26, 27, 110]
    assert walk("status=owed&limit=7") == [number for number in range(1, 121) if number not in (3, 26, 27, 110)]
    assert walk("status=failed") == []


def test_a_delivery_is_shown_with_its_attempts_oldest_first(api: Api, ledger: Ledger) -> None:
    send = submitted(api)
    with ledger.transaction() as connection:
        connection.execute(
            "INSERT INTO attempt (send_id, row_no, claim_id, epoch, number, channel, provider, outcome, became, code,"
            " detail, started_at, ended_at) SELECT %s, 1, gen_random_uuid(), 0, n, 'email', 'smtp', 'transient',"
            " 'retrying', '451', 'later', now() - make_interval(mins => 10 - n), now() FROM generate_series(1, 2) n",
            [send],
        )
    shown = api.get(f"/deliveries/{send}.1").get_json()
    assert (shown["id"], shown["to"], shown["status"]) == (f"{send}.1", "r0@example.com", "owed")
    assert [(attempt["number"], attempt["code"]) for attempt in shown["attempts"]] == [(1, "451"), (2, "451")]
    assert api.get(f"/deliveries/{send}.2").status_code == 404

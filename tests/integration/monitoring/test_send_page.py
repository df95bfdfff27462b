"""The page of one send, and the list of sends."""

import re
from uuid import UUID, uuid4

import pytest
from flask import Flask

from shared.domain.ids import delivery_id
from shared.domain.requeue import FailureFilter, OperationKind
from shared.domain.roles import Role
from shared.domain.states import SendEventKind, SendStatus
from shared.ledger import cancelling, send_events, sends
from shared.ledger.db import Ledger
from tests.integration.ledger.hand import Hand
from tests.integration.monitoring.conftest import MakeApp
from tests.support.browser import Browser, text_of
from tests.support.factories import MadeSend, make_send, send_status
from tests.support.failing import make_failures
from tests.support.ledger_rows import put_rows, put_send, scalar
from tests.support.requeuing import finish, plan

SENDING = SendStatus.SENDING


@pytest.fixture
def app(make_app: MakeApp, redis_url: str) -> Flask:
    return make_app(redis_url=redis_url, email_provider="sandbox", sms_provider="sandbox")


def address(send: MadeSend, rest: str = "") -> str:
    return f"/admin/monitoring/sends/{send.id}{rest}"


@pytest.fixture
def mixed(ledger: Ledger) -> MadeSend:
    """Sent 1–30, failed 31–33, dead-lettered 34–35, unsure 36 and being proved 37, retrying 38–40, suppressed 41."""
    send = make_send(ledger, count=60, status=SENDING)
    for rows, status in ((range(1, 31), "sent"), (range(31, 34), "failed"), (range(34, 36), "dead_lettered")):
        put_rows(ledger, send.id, rows, status)
    put_rows(ledger, send.id, [36], "unsure")
    put_rows(ledger, send.id, [37], "unsure", prove_in="1 minute")
    put_rows(ledger, send.id, range(38, 41), "retrying")
    put_rows(ledger, send.id, [41], "suppressed")
    return send


def test_an_id_among_the_arguments_does_not_show_another_send(
    browser: Browser, ledger: Ledger, mixed: MadeSend
) -> None:
    other = make_send(ledger, count=7, status=SENDING)
    answer = browser.get(address(mixed, f"?id={other.id}"))
    assert str(other.id) not in answer.text


def test_the_pills_count_every_delivery_once(browser: Browser, mixed: MadeSend) -> None:
    text = text_of(browser.get(address(mixed)))
    for said in ("All 60", "Sent 30", "Retrying 3", "Failed 5", "Unsure 2", "Waiting 19", "Not sent on purpose 1"):
        assert said in text, said
    assert "2 of the failed are dead-lettered" in text
    assert "1 of the unsure is being proved" in text
    assert "acme" in text


@pytest.mark.parametrize(
    ("show", "rows"),
    [("sent", 30), ("retrying", 3), ("failed", 5), ("unsure", 2), ("waiting", 19), ("stopped", 1)],
)
def test_a_pill_shows_its_recipients_masked(browser: Browser, mixed: MadeSend, show: str, rows: int) -> None:
    page = browser.get(address(mixed, f"?show={show}"))
    assert len(re.findall(r"p\*\*\*@e\*\*\*\.com", page.text)) == rows
    assert "example" not in page.text


def test_pages_of_recipients_follow_each_other_each_row_once(browser: Browser, ledger: Ledger) -> None:
    send = make_send(ledger, count=120, status=SENDING)
    seen: list[str] = []
    path: str | None = address(send, "?show=waiting")
    while path:
        page = browser.get(path).text
        seen += re.findall(r'data-label="Row"><span class="figure">(\d+)', page)
        found = re.search(r'href="([^"]+)">Next 50', page)
        path = found[1].replace("&amp;", "&") if found else None
    assert seen == [str(row) for row in range(1, 121)]


def test_failed_recipients_lead_to_their_failure_and_all_of_them_to_a_requeue(
    browser: Browser, mixed: MadeSend
) -> None:
    page = browser.get(address(mixed, "?show=failed")).text
    assert f"/admin/monitoring/failures/{delivery_id(mixed.id, 31)}" in page
    assert f"/admin/monitoring/operations/new?kind=requeue&amp;send={mixed.id}" in page


def test_the_file_holds_the_filter_and_no_address(browser: Browser, ledger: Ledger, mixed: MadeSend) -> None:
    with ledger.autocommit() as connection:
        connection.execute("UPDATE delivery SET reference = '=1+1', last_error = 'no jane.doe@example.com here'")
    answer = browser.get(address(mixed, "/recipients.csv?show=failed"))
    lines = answer.text.strip().splitlines()
    assert len(lines) == 6
    assert "'=1+1" in lines[1]
    assert "example" not in answer.text
    assert "jane" not in answer.text


def test_the_time_left_of_a_send_is_that_of_its_turn(browser: Browser, ledger: Ledger) -> None:
    send = make_send(ledger, count=300, status=SENDING, batch_size=100)
    Hand(ledger).take(send, limit=1)
    make_send(ledger, count=2_700, status=SENDING, batch_size=100)
    with ledger.autocommit() as connection:
        connection.execute(
            "INSERT INTO minute_count (minute, writer, mode, channel, provider, took, sent)"
            " SELECT date_trunc('minute', now()) - ago * interval '1 minute', 1, 'live', 'email', 'ches', 5, 60"
            " FROM generate_series(1, 5) AS ago"
        )
    assert "about 10 min left" in text_of(browser.get(address(send)))


def test_a_send_without_a_worker_says_so(browser: Browser, ledger: Ledger, mixed: MadeSend) -> None:
    with ledger.autocommit() as connection:
        connection.execute("UPDATE batch SET due_at = now() - interval '5 minutes' WHERE due_at IS NOT NULL")
        connection.execute("UPDATE send SET started_at = now() - interval '5 minutes'")
    assert "waiting for a worker" in text_of(browser.get(address(mixed)))


def test_batches_name_their_worker(browser: Browser, ledger: Ledger) -> None:
    send = make_send(ledger, count=60, status=SENDING)
    Hand(ledger).take(send, limit=3)
    text = text_of(browser.get(address(send)))
    assert "3 not settled" in text
    assert "by hand" in text


def test_recoveries_and_drains_are_among_a_sends_events(browser: Browser, ledger: Ledger, mixed: MadeSend) -> None:
    with ledger.autocommit() as connection:
        for batch_no in (2, 0):
            send_events.note(connection, mixed.id, SendEventKind.WORKER_DIED, batch_no=batch_no, deliveries=7)
        send_events.note(connection, mixed.id, SendEventKind.DRAINED, worker="worker_bulk@host:1")
        for _ in range(3):
            send_events.note(connection, mixed.id, SendEventKind.MESSAGE_LOST)
        connection.execute("UPDATE send_event SET at = date_trunc('minute', now())")
        send_events.note(connection, uuid4(), SendEventKind.GIVEN_UP, batch_no=9, deliveries=9)
    text = text_of(browser.get(address(mixed)))
    assert "Batches 0, 2 taken back from a worker that died calls in flight, now unsure: 14" in text
    assert "Left by a worker that was told to stop worker_bulk@host:1" in text
    assert "Its message was lost and made anew 3 times within a minute" in text
    assert "given up" not in text


def test_operations_that_took_others_too_are_among_a_sends_events_with_its_own_counts(
    browser: Browser, ledger: Ledger
) -> None:
    mine, other = make_failures(ledger, count=3), make_failures(ledger, count=2)
    group = plan(ledger, FailureFilter(ids=((mine.id, 1), (mine.id, 3), (other.id, 1))))
    finish(ledger)
    alone = plan(ledger, FailureFilter(send_id=other.id), kind=OperationKind.DISCARD, operator="lee")
    page = browser.get(address(mine))
    assert text_of(page).count("0 requeued 1× ") == 2
    assert "kim: requeue of 2 done, 2 done; 3 with those of other sends" in text_of(page)
    assert f'href="/admin/monitoring/operations/{group.id}"' in page.text
    assert str(alone.id) not in page.text
    page = browser.get(address(other))
    assert "lee: discard of 1 scheduled, 0 done" in text_of(page)
    assert str(group.id) in page.text


@pytest.mark.parametrize("kind", SendEventKind)
def test_every_kind_of_event_has_its_words(
    browser: Browser, ledger: Ledger, mixed: MadeSend, kind: SendEventKind
) -> None:
    with ledger.autocommit() as connection:
        send_events.note(connection, mixed.id, kind, batch_no=1)
    assert browser.get(address(mixed)).status_code == 200


def test_pausing_resuming_and_cancelling_are_done_with_a_reason_and_kept(
    browser: Browser, ledger: Ledger, mixed: MadeSend
) -> None:
    assert "22 deliveries wait until somebody resumes" in text_of(browser.get(address(mixed, "/pause")))
    refused = browser.post(address(mixed, "/pause"), {"reason": " "}, follow=True)
    assert "Say why" in text_of(refused)
    assert send_status(ledger, mixed.id) == "sending"
    paused = text_of(browser.post(address(mixed, "/pause"), {"reason": "wrong list"}, follow=True))
    assert "The send is paused" in paused
    assert "kim: wrong list" in paused
    assert "kim: wrong list" in text_of(browser.get("/admin/monitoring"))
    assert "It was paused: kim: wrong list." in text_of(browser.get(address(mixed, "/resume")))
    assert send_status(ledger, mixed.id) == "paused"
    assert scalar(ledger, "SELECT paused_by || '/' || pause_reason FROM send") == "kim/wrong list"
    browser.post(address(mixed, "/resume"))
    assert send_status(ledger, mixed.id) == "sending"
    assert scalar(ledger, "SELECT paused_by FROM send") is None
    assert "Cancel 22 deliveries" in text_of(browser.get(address(mixed, "/cancel")))
    browser.post(address(mixed, "/cancel"), {"reason": "wrong list", "shown": "22"})
    with ledger.transaction() as connection:
        assert cancelling.finish(connection, limit=10, undo_s=0) == [mixed.id]
    assert send_status(ledger, mixed.id) == "cancelled"
    late = text_of(browser.post(address(mixed, "/pause"), {"reason": "again"}, follow=True))
    assert "Nothing was changed: the send is cancelled" in late
    with ledger.autocommit() as connection:
        kept = connection.execute("SELECT action, operator, reason, count, result FROM audit ORDER BY id").fetchall()
    assert kept == [
        ("pause send", "kim", "wrong list", 23, "done"),
        ("resume send", "kim", None, 23, "done"),
        ("cancel send", "kim", "wrong list", 23, "planned"),
        ("cancel send done", "kim", None, 22, "cancelled"),
        ("pause send", "kim", "again", 23, "the send was cancelled"),
    ]
    assert "kim: cancel send" in late


def test_an_address_in_a_sends_name_is_masked_wherever_it_is_shown(browser: Browser, ledger: Ledger) -> None:
    send = make_failures(ledger, count=1)
    open_send = make_send(ledger, count=1, status=SENDING)
    with ledger.autocommit() as connection:
        connection.execute("UPDATE send SET name = 'For jane.doe@example.com'")
    failure = delivery_id(send.id, 1)
    for path in (
        "", "/sends", f"/sends/{open_send.id}", f"/sends/{open_send.id}/pause", "/queues", "/failures/list",
        f"/failures/{failure}", "/failures.csv",
    ):  # fmt: skip
        page = browser.get(f"/admin/monitoring{path}")
        assert page.status_code == 200, path
        assert "For j***@e***.com" in page.text, path
        assert "jane" not in page.text, path


def test_an_address_in_a_reason_is_masked_before_it_is_kept(ledger: Ledger, mixed: MadeSend) -> None:
    why = "jane.doe@example.com asked"
    tenant_id = scalar(ledger, "SELECT tenant_id FROM send")
    kept = "SELECT pause_reason FROM send"
    with ledger.transaction() as connection:
        assert cancelling.begin(connection, mixed.id, operator="kim", reason=why)
    assert "j***@e***.com asked" in scalar(ledger, kept)
    with ledger.transaction() as connection:
        assert cancelling.undo(connection, mixed.id)
        assert sends.pause(connection, tenant_id=tenant_id, send_id=mixed.id, reason=why)
    assert scalar(ledger, kept) == "j***@e***.com asked"


def test_a_cancel_stops_at_once_and_is_undone_within_ten_seconds(
    browser: Browser, ledger: Ledger, mixed: MadeSend
) -> None:
    shown = text_of(browser.post(address(mixed, "/cancel"), {"reason": "wrong list", "shown": "22"}, follow=True))
    assert "The send is stopped." in shown
    assert re.search(r"Nothing more of it is sent. Cancelled for good in \d+ s Undo", shown)
    assert "Cancel what remains" not in shown
    assert send_status(ledger, mixed.id) == "paused"
    assert Hand(ledger).take(mixed, limit=1)[1] == []
    with ledger.transaction() as connection:
        assert cancelling.finish(connection, limit=10, undo_s=600) == []
    again = browser.post(address(mixed, "/cancel"), {"reason": "twice"}, follow=True)
    assert "Nothing was changed: the send is paused" in text_of(again)
    assert "Undone: the send is as it was." in text_of(browser.post(address(mixed, "/cancel/undo"), follow=True))
    assert send_status(ledger, mixed.id) == "sending"
    late = browser.post(address(mixed, "/cancel/undo"), follow=True)
    assert "Nothing was changed: the send is sending" in text_of(late)
    deeds = scalar(ledger, "SELECT array_agg(action || ': ' || result ORDER BY id) FROM audit")
    assert deeds == [
        "cancel send: planned", "cancel send: the send was paused", "undo cancel: the send is sending",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("count", "form", "said"),
    [
        (1_001, {"shown": "1001"}, "Type the number 1001"),
        (1_001, {"shown": "1001", "typed": "100"}, "Type the number 1001"),
        (1_001, {"shown": "1000", "typed": "1000"}, "There are more by now"),
        (1_001, {}, "There are more by now"),
        (1_001, {"shown": "1001", "typed": "1,001"}, None),
        (1_000, {"shown": "1000"}, None),
    ],
)
def test_a_cancel_of_more_than_a_thousand_is_typed_and_of_no_more_than_shown(
    browser: Browser, ledger: Ledger, count: int, form: dict[str, str], said: str | None
) -> None:
    send = make_send(ledger, count=count, status=SENDING)
    assert (f"Type {count} to confirm" in text_of(browser.get(address(send, "/cancel")))) is (count > 1_000)
    answer = browser.post(address(send, "/cancel"), {"reason": "wrong list", **form}, follow=True)
    assert (said or "The send is stopped") in text_of(answer)
    assert send_status(ledger, send.id) == ("sending" if said else "paused")


def test_an_undone_cancel_leaves_a_paused_send_paused_for_its_reason(
    browser: Browser, ledger: Ledger, mixed: MadeSend
) -> None:
    browser.post(address(mixed, "/pause"), {"reason": "the number is wrong"})
    browser.post(address(mixed, "/cancel"), {"reason": "wrong list", "shown": "22"})
    browser.post(address(mixed, "/cancel/undo"))
    assert send_status(ledger, mixed.id) == "paused"
    assert "the number is wrong" in scalar(ledger, "SELECT pause_reason FROM send")
    with ledger.transaction() as connection:
        assert cancelling.finish(connection, limit=10, undo_s=0) == []


def test_a_send_that_goes_on_after_all_is_not_cancelled_by_a_later_pause(
    browser: Browser, ledger: Ledger, mixed: MadeSend
) -> None:
    browser.post(address(mixed, "/cancel"), {"reason": "wrong list", "shown": "22"})
    with ledger.autocommit() as connection:  # as a release before this one resumes it and pauses it again
        connection.execute("UPDATE send SET paused_at = clock_timestamp()")
        assert cancelling.finish(connection, limit=10, undo_s=0) == []
    assert "Undo" not in text_of(browser.get(address(mixed)))


def test_who_may_only_read_acts_on_nothing(app: Flask, ledger: Ledger, mixed: MadeSend) -> None:
    reader = Browser(app, role=Role.READ)
    assert 'aria-disabled="true"' in reader.get(address(mixed)).text
    for action in ("/cancel", "/cancel/undo"):
        assert reader.post(address(mixed, action), {"reason": "x"}).status_code == 403
    assert send_status(ledger, mixed.id) == "sending"


@pytest.mark.parametrize("text", [str(uuid4()), "nonsense", "0", "%00"])
def test_an_address_of_no_send_says_what_may_be_the_matter(browser: Browser, text: str) -> None:
    for rest in ("", "/recipients.csv", "/pause"):
        answer = browser.get(f"/admin/monitoring/sends/{text}{rest}")
        assert answer.status_code == 404
    assert "There is no send with this id" in text_of(browser.get(f"/admin/monitoring/sends/{text}"))


def test_a_send_whose_recipients_are_gone_keeps_its_totals(browser: Browser, ledger: Ledger) -> None:
    send = make_send(ledger, count=40, status=SENDING)
    put_rows(ledger, send.id, range(1, 41), "sent")
    put_send(ledger, send.id, SendStatus.COMPLETED)
    with ledger.autocommit() as connection:
        connection.execute(
            "UPDATE send SET settled_counts = '{\"email\": {\"sent\": 40}}', forgotten_at = '2026-03-01 12:00Z'"
        )
        connection.execute("DELETE FROM batch")
        connection.execute("DELETE FROM delivery")
    text = text_of(browser.get(address(send)))
    assert "Sent 40" in text
    assert "The recipients were removed. Retention removed them on 2026-03-01;" in text
    gone = browser.get(f"/admin/monitoring/failures/{delivery_id(send.id, 40)}")
    assert gone.status_code == 404
    assert "removed by retention on 2026-03-01" in text_of(gone)
    never = browser.get(f"/admin/monitoring/failures/{delivery_id(send.id, 41)}")
    assert never.status_code == 404
    assert "removed" not in text_of(never)


def test_what_was_discarded_has_a_pill_of_its_own(browser: Browser, ledger: Ledger) -> None:
    send = make_failures(ledger, count=3)
    plan(ledger, FailureFilter(ids=((send.id, 2),)), kind=OperationKind.DISCARD)
    finish(ledger)
    text = text_of(browser.get(address(send)))
    assert "Failed 2" in text
    assert "Discarded 1" in text
    shown = {key: browser.get(address(send, f"?show={key}")).text for key in ("failed", "discarded", "all")}
    rows = {key: re.findall(rf"/failures/{send.id}\.(\d+)", page) for key, page in shown.items()}
    assert rows == {"failed": ["1", "3"], "discarded": ["2"], "all": ["1", "2", "3"]}
    assert "dead-lettered, discarded" in shown["all"]
    file = browser.get(address(send, "/recipients.csv?show=discarded")).text.splitlines()
    assert [line.split(",")[0].rpartition(".")[2] for line in file[1:]] == ["2"]


def test_the_list_shows_the_newest_first_page_by_page(browser: Browser, ledger: Ledger) -> None:
    sends = [make_send(ledger, count=1, status=SENDING, tenant="globex") for _ in range(53)]
    put_send(ledger, sends[-1].id, SendStatus.COMPLETED)
    first = browser.get("/admin/monitoring/sends").text
    shown = re.findall(r"/admin/monitoring/sends/([0-9a-f-]{36})", first)
    newest = sorted((send.id for send in sends), reverse=True)  # of one millisecond the ids decide
    assert [UUID(id_) for id_ in shown] == newest[:50]
    older = re.search(r'href="([^"]+)">Older', first)
    assert older is not None
    assert len(re.findall(r"/admin/monitoring/sends/[0-9a-f-]{36}", browser.get(older[1]).text)) == 3
    assert str(sends[-1].id) not in browser.get("/admin/monitoring/sends?status=open").text
    assert scalar(ledger, "SELECT count(*) FROM send") == 53


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/admin/monitoring/sends?status=done", "status is open, or nothing"),
        ("/admin/monitoring/sends?state=open", "state is none of status, before"),
        ("/admin/monitoring/audit?who=kim", "who is none of operator"),
        ("/admin/monitoring/operations?before=junk", "before comes from the page before"),
        ("/admin/monitoring/operations?state=done", "state is none of before"),
    ],
)
def test_a_filter_that_a_list_does_not_know_is_told(browser: Browser, path: str, said: str) -> None:
    answer = browser.get(path)
    assert answer.status_code == 400
    assert said in text_of(answer)


def test_a_filter_of_a_send_that_there_is_not_is_told(browser: Browser, mixed: MadeSend) -> None:
    for path in ("?show=nonsense", "/recipients.csv?show=nonsense"):
        answer = browser.get(address(mixed, path))
        assert answer.status_code == 400
        assert "show is one of all, " in text_of(answer)


def test_panels_of_a_send_are_renewed_alone(browser: Browser, ledger: Ledger, mixed: MadeSend) -> None:
    page = browser.get(address(mixed)).text
    query = re.search(r'data-query="([^"]*)"', page)
    assert query is not None
    have = ",".join(f"{name}:{digest}" for name, digest in re.findall(r'data-panel="(\w+)" data-hash="(\w+)"', page))
    path = f"/admin/monitoring/panels?page=send&{query[1]}&have={have}"
    assert browser.get(path).get_json()["panels"] == {}
    put_rows(ledger, mixed.id, range(50, 61), "sent")
    assert set(browser.get(path).get_json()["panels"]) == {"send_figures", "send_batches"}


def test_a_send_went_on_for_what_was_done_at_that_moment(browser: Browser, ledger: Ledger, mixed: MadeSend) -> None:
    browser.post(address(mixed, "/pause"), {"reason": "wait"})
    browser.post(address(mixed, "/resume"))
    assert re.search("UTC Went on resumed(?!,)", text_of(browser.get(address(mixed))))
    browser.post(address(mixed, "/cancel"), {"reason": "wrong list", "shown": "22"})
    browser.post(address(mixed, "/cancel/undo"))
    assert "UTC Went on its cancel was undone" in text_of(browser.get(address(mixed)))
    with ledger.autocommit() as connection:
        connection.execute("UPDATE send SET resumed_at = now()")  # as its tenant's resume does, and a requeue
    assert "UTC Went on resumed, or some of it requeued" in text_of(browser.get(address(mixed)))


def test_the_list_of_sends_says_what_they_are_doing_as_the_overview_does(browser: Browser, ledger: Ledger) -> None:
    waits = make_send(ledger, count=99, status=SENDING)
    put_rows(ledger, waits.id, range(1, 100), "retrying", due_in="9 minutes")
    for _ in range(20):
        make_send(ledger, count=2, status=SENDING)
    shown = text_of(browser.get("/admin/monitoring/sends"))
    assert shown.count("trying again") == 1
    assert shown.count("in progress") == 1, "it owes too little to be among those that the Overview shows"

"""
The pages that every check of all pages goes over: accessibility in both themes, a telephone's width, no scripts.

A page is added here with what must be in the ledger to fill it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from shared.domain.digests import NotificationStatus
from shared.domain.requeue import FailureFilter
from shared.domain.states import Channel, SendStatus
from shared.ledger import cancelling, digest_runs, digest_setup, failed_jobs, failures, notifications, pauses, providers
from shared.ledger.db import Ledger
from tests.support.digests import make_channel, post
from tests.support.factories import make_send
from tests.support.failing import CAUSE, fail_again, make_failures
from tests.support.ledger_rows import put_rows
from tests.support.requeuing import finish, plan


@dataclass(frozen=True)
class PageCase:
    """`open` fills the ledger and gives the page's address."""

    name: str
    open: Callable[[Ledger], str]


def _empty(path: str) -> Callable[[Ledger], str]:
    return lambda ledger: path


def _overview(ledger: Ledger) -> str:
    make_send(ledger, count=300, status=SendStatus.SENDING)
    make_send(ledger, count=2, channel=Channel.SMS, status=SendStatus.SENDING)
    busy_hours(ledger)
    return "/admin/monitoring"


def busy_hours(ledger: Ledger) -> None:
    """Two hours of sending, so that no figure is empty."""
    with ledger.transaction() as connection:
        connection.execute(
            "INSERT INTO minute_count (minute, writer, mode, channel, provider, took, sent, failed, calls, accepted,"
            " requests) SELECT date_trunc('minute', now()) - ago * interval '1 minute', 0, 'live', channel, 'sandbox',"
            " 4 + ago % 5, 40 + ago % 17, (ago % 9 = 0)::int * 4, 44, 44, ago % 3"
            " FROM generate_series(0, 119) AS ago, unnest('{email,sms}'::text[]) AS channel ON CONFLICT DO NOTHING"
        )


def a_send(ledger: Ledger) -> str:
    """A send with deliveries in most states, and its page."""
    send = make_send(ledger, count=120, status=SendStatus.SENDING)
    for rows, status in ((range(1, 71), "sent"), (range(71, 76), "failed"), ([76, 77], "dead_lettered")):
        put_rows(ledger, send.id, rows, status)
    put_rows(ledger, send.id, [78, 79], "unsure")
    put_rows(ledger, send.id, range(80, 84), "retrying")
    with ledger.transaction() as connection:
        connection.execute("UPDATE delivery SET last_error = '550: mailbox of a***@e***.com unknown' WHERE row_no > 70")
        connection.execute("UPDATE send SET name = 'Autumn newsletter'")
    busy_hours(ledger)
    return f"/admin/monitoring/sends/{send.id}"


def _cancelled(ledger: Ledger) -> str:
    path = a_send(ledger)
    with ledger.transaction() as connection:
        cancelling.begin(connection, UUID(path.rpartition("/")[2]), operator="kim", reason="the wrong list")
    return path


def _sends(ledger: Ledger) -> str:
    a_send(ledger)
    return "/admin/monitoring/sends"


def _inbox(ledger: Ledger) -> str:
    with ledger.transaction() as connection:
        connection.execute(
            "INSERT INTO sandbox_message (key, channel, address, sender, subject, text, html)"
            " SELECT gen_random_uuid(), 'email', 'ada@example.com', 'City <noreply@example.com>', 'Number ' || n,"
            " 'Hello', '<p>Hello</p>' FROM generate_series(1, 3) n"
        )
    return "/inbox"


def _letter(ledger: Ledger) -> str:
    _inbox(ledger)
    with ledger.transaction() as connection:
        row = connection.execute("SELECT max(id) FROM sandbox_message").fetchone()
    assert row is not None
    return f"/inbox/{row[0]}"


def _system(ledger: Ledger) -> str:
    make_send(ledger, count=30, status=SendStatus.SENDING)
    with ledger.transaction() as connection:
        pauses.pause(connection, "sms_bulk", operator="kim", reason="the contract is being renewed, until Monday")
        providers.hold(
            connection, provider="sandbox", credential="sandbox", operator="kim", reason="they asked us to stop"
        )
        connection.execute(
            "INSERT INTO recovery_pass (worker, fence, ended_at, counts) VALUES ('worker ops@host:1', 7, now(),"
            """ '{"batch": {"found": 2, "retried": 1, "requeued": 1, "given_up": 0}}')"""
        )
    return "/admin/monitoring/system"


def _failures(ledger: Ledger) -> str:
    make_failures(ledger, count=5, addresses=[f"somebody.with.a.long.name{n}@example.com" for n in range(5)])
    make_failures(
        ledger, count=3, status="failed", cause="bbbbbbbbbbbb", title="550 5.1.1: no such mailbox", tenant="other"
    )
    make_failures(ledger, count=2, status="unsure", cause="cccccccccccc", title="cut off", channel=Channel.SMS)
    title = "CHES 422: the domain of this recipient does not exist, or takes no mail from us any more"
    again = make_failures(ledger, count=1_200, cause="dddddddddddd", title=title, tenant="other")
    plan(ledger, FailureFilter(signature="dddddddddddd"), operator="Kim Example-Somebody")
    finish(ledger)
    put_rows(ledger, again.id, range(1, 1_001), "sent")
    fail_again(ledger, again.id, list(range(1_001, 1_201)))
    with ledger.transaction() as connection:
        connection.execute("UPDATE failure_group SET first_seen_at = now() - interval '50 minutes'")
        failures.write_note(connection, CAUSE, "their export was wrong, ticket 12", author="kim")
        failed_jobs.record(
            connection, queue="ops", job="prove", kind="raised", send_id=None, error="ValueError: a fault of ours"
        )
    return "/admin/monitoring/failures"


def _failure_list(ledger: Ledger) -> str:
    return f"{_failures(ledger)}/list"


def _failure_group(ledger: Ledger) -> str:
    path = _failures(ledger)
    with ledger.transaction() as connection:
        failures.write_note(connection, "dddddddddddd", "their export was wrong, ticket 12", author="kim")
    return f"{path}/groups/dddddddddddd"


def _failure(ledger: Ledger) -> str:
    send = make_failures(ledger, status="unsure", cause="cccccccccccc", title="cut off")
    return f"/admin/monitoring/failures/{send.id}.1"


def _recipient(ledger: Ledger) -> str:
    make_failures(ledger, addresses=["jane.doe@example.com"])
    send = make_send(ledger, addresses=["jane.doe@example.com", "bob@example.com"], status=SendStatus.SENDING)
    put_rows(ledger, send.id, [1, 2], "retrying")
    return f"/admin/monitoring/recipients/{send.id}.1"


def _retries(ledger: Ledger) -> str:
    _recipient(ledger)
    return "/admin/monitoring/failures/retrying"


def _preview(ledger: Ledger) -> str:
    make_failures(ledger, count=1_001)
    make_failures(ledger, count=2, status="unsure", cause="cccccccccccc", title="cut off")
    with ledger.transaction() as connection:  # a count at System too: the widest that the tabs become
        pauses.pause(connection, "sms_bulk", operator="kim", reason="the contract is being renewed")
    return "/admin/monitoring/operations/new?kind=requeue"


def _operation(ledger: Ledger) -> str:
    make_failures(ledger, count=30)
    return f"/admin/monitoring/operations/{plan(ledger, FailureFilter(), undo_s=600).id}"


def _operations(ledger: Ledger) -> str:
    _operation(ledger)
    title = "CHES 400: the domain of the recipient's address is not one that can be written to"
    make_failures(ledger, count=2, cause="dddddddddddd", title=title)
    plan(ledger, FailureFilter(signature="dddddddddddd", cause=title), undo_s=600)
    return "/admin/monitoring/operations"


def dead_letters(ledger: Ledger) -> str:
    """A digest channel with a dead letter, one that is disabled, and their page."""
    channel = make_channel(ledger, "https://example.com/hook", max_delivery_attempts=1)
    make_channel(ledger, "https://example.com/hook", name="off")
    post(ledger, "a", "b")
    with ledger.transaction() as connection:
        connection.execute("UPDATE digest_channel SET enabled = false WHERE name = 'off'")
        notifications.detect(connection, channel)
        connection.execute(
            "UPDATE notification SET status = 'dead_lettered', next_attempt_at = NULL, final_at = now(),"
            " attempt_count = 1, last_error = 'webhook_400: no such hook' WHERE dedup_key = 'a'"
        )
    return "/admin/monitoring/digests"


def _digest_run(ledger: Ledger) -> str:
    path = dead_letters(ledger)
    with ledger.transaction() as connection:
        run = digest_setup.ask_run(connection, operator="kim")
        digest_runs.begin(connection, run, worker="w")
        digest_runs.end(connection, run, result={"found": 2, "told": 3, "sent": 1, "failed": 0, "frozen": 1})
    return f"{path}/runs/{run}"


def _digest_item(ledger: Ledger) -> str:
    path = f"{dead_letters(ledger)}/history"
    with ledger.transaction() as connection:
        return f"{path}/{notifications.history(connection, limit=1, status=NotificationStatus.DEAD_LETTERED)[0].id}"


PAGES = [
    PageCase("overview, nothing there", _empty("/admin/monitoring")),
    PageCase("overview", _overview),
    PageCase("failures, nothing there", _empty("/admin/monitoring/failures")),
    PageCase("failures", _failures),
    PageCase("failures one by one", _failure_list),
    PageCase("failures by send", lambda ledger: f"{_failures(ledger)}?by=send"),
    PageCase("group of failures, requeued and with a note", _failure_group),
    PageCase("group of unsure", lambda ledger: f"{_failures(ledger)}/groups/cccccccccccc"),
    PageCase("one failure", _failure),
    PageCase("everything to a recipient", _recipient),
    PageCase("retrying", _retries),
    PageCase("retrying, nothing there", _empty("/admin/monitoring/failures/retrying")),
    PageCase("preview", _preview),
    PageCase("operation", _operation),
    PageCase("operations", _operations),
    PageCase("system, nothing there", _empty("/admin/monitoring/system")),
    PageCase("digests, nothing there", _empty("/admin/monitoring/digests")),
    PageCase("digests", dead_letters),
    PageCase("switching a digest channel off", lambda ledger: f"{dead_letters(ledger)}/channels/ops/disable"),
    PageCase("removing a digest channel", lambda ledger: f"{dead_letters(ledger)}/channels/ops/remove"),
    PageCase("adding a digest channel", _empty("/admin/monitoring/digests/channels/new?type=webhook")),
    PageCase("editing a digest channel", lambda ledger: f"{dead_letters(ledger)}/channels/ops/edit"),
    PageCase("history of digests, nothing there", _empty("/admin/monitoring/digests/history")),
    PageCase("history of digests", lambda ledger: f"{dead_letters(ledger)}/history"),
    PageCase("one notification", _digest_item),
    PageCase("a run of digests", _digest_run),
    PageCase("requeueing dead letters of digests", lambda ledger: f"{dead_letters(ledger)}/requeue"),
    PageCase("discarding dead letters of digests", lambda ledger: f"{dead_letters(ledger)}/discard"),
    PageCase("operations, nothing there", _empty("/admin/monitoring/operations")),
    PageCase("audit", _empty("/admin/monitoring/audit")),
    PageCase("sign-in", _empty("/admin/sign-in")),
    PageCase("a send", a_send),
    PageCase("a send's failed", lambda ledger: f"{a_send(ledger)}?show=failed"),
    PageCase("a send that is being cancelled", _cancelled),
    PageCase("cancelling a send", lambda ledger: f"{a_send(ledger)}/cancel"),
    PageCase("sends", _sends),
    PageCase("sends, nothing there", _empty("/admin/monitoring/sends")),
    PageCase("no such page", _empty("/admin/monitoring/no-such-page")),
    PageCase("inbox, nothing there", _empty("/inbox")),
    PageCase("inbox", _inbox),
    PageCase("letter", _letter),
    PageCase("system", _system),
    PageCase("holding a provider", _empty("/admin/monitoring/system/providers/sandbox:sandbox/hold")),
    PageCase("pausing a queue", _empty("/admin/monitoring/system/queues/email_bulk/pause")),
]

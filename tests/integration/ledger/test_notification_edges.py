"""Every operation on a notification in every state, and the edges that it takes, which are those of the page."""

from collections.abc import Callable
from uuid import uuid4

from shared.domain.digest_requeue import DeadLetterFilter
from shared.domain.digest_retry import judge
from shared.domain.digests import NOTIFICATION_EDGES, Digest, DigestStatus, Item, NotificationStatus, Severity
from shared.domain.outcome import Accepted, Ambiguous, Outcome, Scope, Throttled, Transient
from shared.domain.retry import RetryPolicy
from shared.ledger import digest_channels, notifications
from shared.ledger.db import Connection, Ledger
from shared.ledger.notifications import Claimed
from tests.support.digests import make_channel, post, put
from tests.support.requeuing import requeue_dead_letters

Operate = Callable[[Connection, int, int], object]


def put_row(connection: Connection, channel: int, status: NotificationStatus) -> int:
    """A notification in a state; it is open, it is in a digest whose call is under way."""
    open_ = status in {NotificationStatus.PENDING, NotificationStatus.RETRYING}
    connection.execute("DELETE FROM notification")
    connection.execute("DELETE FROM digest")
    row = connection.execute(
        "INSERT INTO notification (channel_id, dedup_key, kind, subject, severity, occurred_at, status,"
        " next_attempt_at, final_at, sent_at, dispatch_batch_id)"
        " VALUES (%(channel)s, 'k', 'x', 's', 'high', now(), %(status)s,"
        " CASE WHEN %(open)s THEN now() END, CASE WHEN NOT %(open)s THEN now() END,"
        " CASE WHEN %(status)s = 'sent' THEN now() END, CASE WHEN %(status)s = 'sent' THEN gen_random_uuid() END)"
        " RETURNING id",
        {"channel": channel, "status": status.value, "open": open_},
    ).fetchone()
    assert row is not None
    return int(row[0])


def recording(outcome: Outcome, *, last: bool = False) -> Operate:
    def operate(connection: Connection, channel: int, row: int) -> None:
        taken = digest_channels.take(connection, channel)
        assert taken is not None
        claimed = notifications.claim(connection, taken, lease_s=60)
        if claimed is None:  # as a dispatcher that comes too late, with a set of its own
            item = Item(row, "k", "x", "s", Severity.HIGH, None, None, taken.now, 0, taken.now)
            claimed = Claimed(Digest(uuid4(), "ops", taken.now, [item]), uuid4(), maybe_known=False, taken_over=0)
        policy = RetryPolicy(max_attempts=1 if last else 5)
        judged = judge(outcome, claimed.digest.items, policy, now=taken.now)
        notifications.record(connection, claimed, judged, outcome="x", error="x")

    return operate


def detecting(connection: Connection, channel: int, row: int) -> None:
    notifications.detect(connection, channel)
    notifications.detect(connection, channel, baseline=True)


def requeueing(*, named: bool) -> Operate:
    def operate(connection: Connection, channel: int, row: int) -> None:
        requeue_dead_letters(connection, DeadLetterFilter(ids=(row,) if named else ()))

    return operate


OPERATIONS: list[Operate] = [
    recording(Accepted(None)),
    recording(Transient(Scope.PROVIDER, "x")),
    recording(Transient(Scope.PROVIDER, "x"), last=True),
    recording(Ambiguous("x")),
    recording(Throttled("x")),
    requeueing(named=False),
    requeueing(named=True),
    detecting,
]


def test_the_edges_taken_are_those_of_the_page(ledger: Ledger) -> None:
    channel = make_channel(ledger, "https://example.com/x")
    post(ledger, "k")
    put(ledger, "k")
    seen = set()
    for status in NotificationStatus:
        for operate in OPERATIONS:
            with ledger.transaction() as connection:
                row = put_row(connection, channel, status)
                before = attempts_of(connection, row)
                operate(connection, channel, row)
                found = connection.execute("SELECT status FROM notification WHERE id = %s", [row]).fetchone()
                assert found is not None
                if found[0] != status or attempts_of(connection, row) != before:
                    seen.add((status, NotificationStatus(found[0])))
    assert seen == NOTIFICATION_EDGES


def attempts_of(connection: Connection, row: int) -> object:
    return connection.execute("SELECT attempt_count FROM notification WHERE id = %s", [row]).fetchone()


def test_a_digest_that_is_over_takes_no_second_outcome(ledger: Ledger) -> None:
    channel = make_channel(ledger, "https://example.com/x")
    post(ledger, "a")
    with ledger.transaction() as connection:
        taken = digest_channels.take(connection, channel)
        assert taken is not None
        notifications.detect(connection, channel)
        claimed = notifications.claim(connection, taken, lease_s=60)
        assert claimed is not None
        assert notifications.claim(connection, taken, lease_s=60) is None
        judged = judge(Accepted(None), claimed.digest.items, RetryPolicy(), now=taken.now)
        assert notifications.record(connection, claimed, judged, outcome="accepted", error=None)
        failed = judge(Transient(Scope.PROVIDER, "x"), claimed.digest.items, RetryPolicy(), now=taken.now)
        assert not notifications.record(connection, claimed, failed, outcome="transient", error="x")
        (message,) = notifications.messages(connection, limit=10)
        assert message.status == DigestStatus.SENT

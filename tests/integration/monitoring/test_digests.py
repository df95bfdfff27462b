"""Digests on the Overview and in the metrics: as the ledger has them, without a secret."""

import pytest

from shared.domain.digest_retry import judge
from shared.domain.digests import Severity
from shared.domain.outcome import (
    Accepted,
    Ambiguous,
    Configuration,
    NotAttempted,
    Outcome,
    Scope,
    Throttled,
    Transient,
    name_of,
)
from shared.domain.retry import RetryPolicy
from shared.ledger import digest_channels, notifications, retention
from shared.ledger.db import Ledger
from shared.ledger.notifications import Claimed
from tests.integration.monitoring.conftest import MakeApp
from tests.integration.monitoring.test_metrics import one, read
from tests.support.browser import Browser
from tests.support.digests import age, event, make_channel, post


def tell(ledger: Ledger, channel: int, outcome: Outcome) -> None:
    with ledger.transaction() as connection:
        taken = digest_channels.take(connection, channel)
        assert taken is not None
        notifications.detect(connection, channel)
        claimed = notifications.claim(connection, taken, lease_s=60)
        assert claimed is not None
        judged = judge(outcome, claimed.digest.items, RetryPolicy(max_attempts=2), now=taken.now)
        notifications.record(connection, claimed, judged, outcome=name_of(outcome), error=None)
        if judged.waits_s is not None:
            digest_channels.note_waits(connection, taken, seconds=judged.waits_s)
        elif judged.refused:
            digest_channels.note_refused(connection, taken, reason="webhook_404: gone", recheck_s=300)
        elif isinstance(outcome, Accepted):
            digest_channels.note_sent(connection, channel)


def test_the_metrics_are_the_ledger_s(make_app: MakeApp, ledger: Ledger) -> None:
    channel = make_channel(ledger, "https://example.com/hook?key=secret-part")
    post(ledger, event("a"), event("b", kind="cve", severity=Severity.CRITICAL))
    tell(ledger, channel, Accepted(None))
    post(ledger, "c")
    for _ in range(2):
        with ledger.transaction() as connection:
            connection.execute("UPDATE notification SET next_attempt_at = now() WHERE final_at IS NULL")
        tell(ledger, channel, Transient(Scope.PROVIDER, "x"))
    post(ledger, "d", "e")
    tell(ledger, channel, Configuration(Scope.PROVIDER, "x"))
    samples = read(make_app())
    assert one(samples, "tidings_notifications_sent_total", channel="ops", kind="update") == 1
    assert one(samples, "tidings_notifications_sent_total", channel="ops", kind="cve") == 1
    failed = "tidings_notifications_failed_total"
    assert one(samples, failed, channel="ops", kind="update", reason="transient") == 1
    assert one(samples, failed, channel="ops", kind="update", reason="dead_lettered") == 1
    assert one(samples, "tidings_notifications_pending", channel="ops", kind="update") == 2
    assert one(samples, "tidings_digest_channel_not_configured", channel="ops") == 1
    assert one(samples, "tidings_warnings", rule="DigestChannelRefuses") == 1


def test_the_counts_outlive_what_they_counted(make_app: MakeApp, ledger: Ledger) -> None:
    channel = make_channel(ledger, "https://example.com/hook")
    post(ledger, "a")
    tell(ledger, channel, Accepted(None))
    with ledger.transaction() as connection:
        digest_channels.remove(connection, channel)
    samples = read(make_app())
    assert one(samples, "tidings_notifications_sent_total", channel="ops", kind="update") == 1
    assert not [name for name, _ in samples if name == "tidings_notifications_pending"]


def test_of_more_than_a_hundred_kinds_the_rarest_wait_together(ledger: Ledger) -> None:
    channel = make_channel(ledger, "https://example.com/hook")
    with ledger.transaction() as connection:
        connection.execute(
            "INSERT INTO notification (channel_id, dedup_key, kind, subject, severity, occurred_at, status,"
            " next_attempt_at) SELECT %s, k || '-' || n, 'kind-' || k, 's', 'low', now(), 'pending', now()"
            " FROM generate_series(1, 103) k, generate_series(1, 1 + (k <= 100)::int) n",
            [channel],
        )
        found = notifications.waiting(connection)
    assert len(found) == 101
    assert ("ops", "other", 3) in found
    assert sum(count for _, _, count in found) == 203


def test_the_overview_shows_what_waits_and_no_secret(make_app: MakeApp, ledger: Ledger) -> None:
    channel = make_channel(ledger, "https://example.com/hook?key=secret-part")
    post(ledger, "a", "b")
    tell(ledger, channel, Transient(Scope.PROVIDER, "x"))
    browser = Browser(make_app())
    page = browser.get("/admin/monitoring").get_data(as_text=True)
    assert "ops" in page
    document = browser.get("/admin/monitoring/queues").get_data(as_text=True)
    assert '"backing_off_until"' in document
    for text in (page, document):
        assert "secret-part" not in text
        assert "whsec_" not in text


def test_a_channel_backs_off_from_a_message_that_is_not_taken_to_one_that_is(make_app: MakeApp, ledger: Ledger) -> None:
    channel = make_channel(ledger, "https://example.com/hook")

    def seen() -> tuple[bool, bool]:
        with ledger.autocommit() as connection:
            (row,) = digest_channels.every(connection)
        return row.backs_off, row.waits

    post(ledger, "a")
    assert seen() == (False, False)
    tell(ledger, channel, Transient(Scope.PROVIDER, "x"))
    post(ledger, "new, due at once")
    tell_nothing(ledger, channel)
    assert seen() == (True, False)
    tell(ledger, channel, Throttled("x", retry_after_s=900))
    assert seen() == (True, True)
    age(ledger, "2 hours")
    assert one(read(make_app()), "tidings_warnings", rule="DigestNotTaken") == 1
    with ledger.transaction() as connection:
        assert digest_channels.enable(connection, channel, enabled=False)
    assert one(read(make_app()), "tidings_warnings", rule="DigestNotTaken") == 0
    with ledger.transaction() as connection:
        assert digest_channels.enable(connection, channel, enabled=True)
    tell(ledger, channel, Accepted(None))
    post(ledger, "later")
    assert seen() == (False, False)


@pytest.mark.parametrize("first", ["no answer", "died"])
@pytest.mark.parametrize("repeat", ["under way", "cut"])
def test_a_channel_backs_off_while_a_message_that_may_have_been_taken_is_repeated(
    ledger: Ledger, first: str, repeat: str
) -> None:
    channel = make_channel(ledger, "https://example.com/hook")
    post(ledger, "a")
    if first == "died":
        tell_nothing(ledger, channel)
        call(ledger, channel)
    else:
        tell(ledger, channel, Ambiguous("timeout"))
    age(ledger, "2 hours")
    claimed = call(ledger, channel)
    if repeat == "cut":
        cut = NotAttempted("draining")
        with ledger.transaction() as connection:
            taken = digest_channels.take(connection, channel)
            assert taken is not None
            judged = judge(cut, claimed.digest.items, RetryPolicy(), now=taken.now, maybe_known=claimed.maybe_known)
            assert notifications.record(connection, claimed, judged, outcome=name_of(cut), error=None)
    with ledger.autocommit() as connection:
        (row,) = digest_channels.every(connection)
    assert row.backs_off


def call(ledger: Ledger, channel: int) -> Claimed:
    with ledger.transaction() as connection:
        taken = digest_channels.take(connection, channel)
        assert taken is not None
        claimed = notifications.claim(connection, taken, lease_s=60)
    assert claimed is not None
    return claimed


def tell_nothing(ledger: Ledger, channel: int) -> None:
    with ledger.transaction() as connection:
        notifications.detect(connection, channel)


def test_the_next_try_of_one_is_not_before_its_channel_may_be_called(ledger: Ledger) -> None:
    channel = make_channel(ledger, "https://example.com/hook")
    post(ledger, "a")
    tell(ledger, channel, Throttled("x", retry_after_s=900))
    with ledger.autocommit() as connection:
        (one,) = notifications.history(connection, limit=9)
        (seen,) = digest_channels.every(connection)
        story = notifications.find(connection, one.id)
    assert story is not None
    assert one.next_attempt_at == story.told.next_attempt_at == seen.wait_until


def test_a_retention_that_does_not_end_is_measured(make_app: MakeApp, ledger: Ledger) -> None:
    with ledger.transaction() as connection:
        run = retention.take(connection, worker="w", every_s=1, silent_s=1)
        assert run is not None
        connection.execute("UPDATE retention_run SET started_at = now() - interval '2 days'")
    assert one(read(make_app()), "tidings_retention_unfinished_seconds") > 170_000
    with ledger.transaction() as connection:
        retention.note(connection, run, removed={"deliveries": 3}, longest_ms=5, over=True)
    assert one(read(make_app()), "tidings_retention_unfinished_seconds") == 0

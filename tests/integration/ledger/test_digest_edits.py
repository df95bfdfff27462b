"""A channel that is changed while events come in and dispatch is at it: nothing is lost, nobody locks another out."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from shared.domain.digest_channels import Setup
from shared.domain.digests import Severity
from shared.ledger import digest_channels, digest_setup, events, notifications
from shared.ledger.db import Connection, Ledger
from shared.ledger.digest_channels import Wishes
from tests.support.digests import event, finding, make_channel, post, put, statuses
from tests.support.ledger_rows import scalar
from tests.support.waiting import wait_until

_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


def edit(ledger: Ledger, severity: Severity = Severity.CRITICAL, **more: bool) -> int:
    with ledger.transaction() as connection:
        channel = digest_channels.find(connection, "ops")
        assert channel is not None
        wishes = Wishes(min_severity=severity)
        return digest_setup.change(connection, channel, setup=Setup({}), wishes=wishes, operator="kim", **more)


def tenant_of(connection: Connection) -> int:
    found = digest_channels.find(connection, "ops")
    assert found is not None
    return found.tenant_id


def start_edit(ledger: Ledger, pool: ThreadPoolExecutor) -> Future[int]:
    """An edit that has come as far as it can."""
    edited = pool.submit(edit, ledger)
    wait_until(lambda: edited.done() or scalar(ledger, _WAITING), what="the edit to wait")
    return edited


def detect(ledger: Ledger, channel: int) -> None:
    with ledger.transaction() as connection:
        notifications.detect(connection, channel)


def test_an_edit_and_a_dispatch_do_not_lock_each_other_out(ledger: Ledger, pool: ThreadPoolExecutor) -> None:
    channel = make_channel(ledger, "https://example.com/x")
    post(ledger, "a")
    with ledger.transaction() as connection:
        assert digest_channels.take(connection, channel) is not None
        edited = start_edit(ledger, pool)
        notifications.detect(connection, channel)
    edited.result()
    assert statuses(ledger) == {"a": "pending"}


def test_an_event_that_is_being_handed_in_is_found_by_the_filter_as_it_was(
    ledger: Ledger, pool: ThreadPoolExecutor
) -> None:
    channel = make_channel(ledger, "https://example.com/x")
    with ledger.transaction() as connection:
        events.store_events(connection, tenant_of(connection), [event("a", severity=Severity.LOW)])
        edited = start_edit(ledger, pool)
        assert not edited.done()
    edited.result()
    detect(ledger, channel)
    assert statuses(ledger) == {"a": "pending"}


def test_a_finding_that_is_being_handed_in_is_found_by_the_filter_as_it_was(
    ledger: Ledger, pool: ThreadPoolExecutor
) -> None:
    channel = make_channel(ledger, "https://example.com/x")
    with ledger.transaction() as connection:
        events.put_findings(connection, tenant_of(connection), [finding("a")])
        edited = start_edit(ledger, pool)
        assert not edited.done()
    edited.result()
    detect(ledger, channel)
    assert statuses(ledger) == {"a": "pending"}


def test_an_event_whose_request_began_before_a_change_and_came_after_it_is_found(ledger: Ledger) -> None:
    channel = make_channel(ledger, "https://example.com/x", min_severity=Severity.CRITICAL)
    with ledger.transaction() as connection:
        tenant = tenant_of(connection)
        edit(ledger, Severity.LOW)
        events.store_events(connection, tenant, [event("a", severity=Severity.LOW)])
    detect(ledger, channel)
    assert statuses(ledger) == {"a": "pending"}


def test_what_came_before_a_change_is_not_told_by_the_new_filter(ledger: Ledger) -> None:
    channel = make_channel(ledger, "https://example.com/x", min_severity=Severity.CRITICAL)
    with ledger.transaction() as connection:  # the change begins, and an event comes before it takes hold
        found = digest_channels.find(connection, "ops")
        assert found is not None
        post(ledger, event("a", severity=Severity.LOW))
        digest_setup.change(connection, found, setup=Setup({}), wishes=Wishes(), operator="kim")
    detect(ledger, channel)
    assert statuses(ledger) == {}


def test_what_a_wider_filter_lets_in_is_known_and_what_comes_after_is_told(ledger: Ledger) -> None:
    channel = make_channel(ledger, "https://example.com/x", min_severity=Severity.MEDIUM)
    put(ledger, finding("mild", severity=Severity.LOW), "heard of")
    post(ledger, event("mild event", severity=Severity.LOW))
    assert edit(ledger, Severity.INFO) == 1
    put(ledger, finding("new", severity=Severity.LOW))
    detect(ledger, channel)
    assert statuses(ledger) == {"heard of": "pending", "mild": "suppressed", "new": "pending"}


def test_a_wider_filter_can_be_told_what_it_lets_in(ledger: Ledger) -> None:
    channel = make_channel(ledger, "https://example.com/x", min_severity=Severity.MEDIUM)
    put(ledger, finding("mild", severity=Severity.LOW))
    post(ledger, event("mild event", severity=Severity.LOW))
    assert edit(ledger, Severity.INFO, tell_existing=True) == 0
    detect(ledger, channel)
    assert statuses(ledger) == {"mild": "pending"}

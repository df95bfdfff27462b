"""What detection finds and what it leaves: by when something came to be, and by what a channel wanted to hear then."""

from typing import Any

from shared.domain.digests import Severity
from shared.ledger import notifications
from shared.ledger.db import Ledger
from tests.support.digests import finding, make_channel, put, statuses
from tests.support.ledger_rows import scalar

URL = "https://example.com/x"


def detect(ledger: Ledger, channel: int) -> None:
    with ledger.transaction() as connection:
        notifications.detect(connection, channel)


def moved(ledger: Ledger, table: str, column: str, by: str) -> None:
    with ledger.transaction() as connection:
        connection.execute(f"UPDATE {table} SET {column} = {column} - %s::interval", [by])  # type: ignore[arg-type]


def test_a_finding_of_a_kind_that_the_channel_hears_by_now_is_told(ledger: Ledger) -> None:
    channel = make_channel(ledger, URL, kinds=["exploit"])
    put(ledger, finding("f", kind="cve"))
    moved(ledger, "finding", "changed_at", "1 hour")
    detect(ledger, channel)
    put(ledger, finding("f", kind="exploit"))
    detect(ledger, channel)
    assert statuses(ledger) == {"f": "pending"}


def test_a_finding_that_came_into_sight_minutes_after_it_was_put_is_found(ledger: Ledger) -> None:
    channel = make_channel(ledger, URL)
    detect(ledger, channel)
    put(ledger, "f")  # by a transaction that began nine minutes ago and is committed now
    moved(ledger, "finding", "changed_at", "9 minutes")
    detect(ledger, channel)
    assert statuses(ledger) == {"f": "pending"}


def test_what_is_put_as_over_again_has_been_so_since_the_first_time(ledger: Ledger) -> None:
    put(ledger, finding("f", active=False))
    moved(ledger, "finding", "inactive_at", "3 days")
    put(ledger, finding("f", active=False, subject="another word", severity=Severity.LOW))
    assert over_for(ledger) == 3


def over_for(ledger: Ledger) -> Any:
    return scalar(ledger, "SELECT extract(day FROM now() - inactive_at)::int FROM finding")

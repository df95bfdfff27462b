from dataclasses import asdict, fields, replace
from datetime import UTC, datetime

import pytest

from shared.domain.books import ChannelBooks, Owed, Reason
from shared.domain.states import SendStatus

NEXT = datetime(2027, 3, 1, tzinfo=UTC)
BOOKS = ChannelBooks(
    accepted=55, waiting=20, sending=3, retrying=4, proving=2, sent=10, failed=5, dead_lettered=1, unsure=2,
    suppressed=3, cancelled=4, expired=1, later=6, next_at=NEXT,
)  # fmt: skip
SENDING = SendStatus.SENDING


def parts(owed: Owed) -> int:
    return sum(value for name, value in asdict(owed).items() if name != "backoff_until")


def test_what_is_accepted_is_owed_or_settled_and_anything_else_is_unaccounted_for() -> None:
    assert (BOOKS.owed, BOOKS.settled, BOOKS.unaccounted) == (29, 26, 0)
    assert replace(BOOKS, sent=9).unaccounted == 1


@pytest.mark.parametrize("status", SendStatus)
@pytest.mark.parametrize("wait", [None, "gate", "circuit", "isolated", "hold", "cap"])
def test_the_parts_of_what_is_owed_always_sum_to_it(status: SendStatus, wait: Reason | None) -> None:
    assert parts(BOOKS.where(status, wait)) == BOOKS.owed


def test_what_is_due_waits_for_its_provider_and_what_is_in_backoff_for_its_time() -> None:
    assert BOOKS.where(SENDING, None) == Owed(ready=14, in_hand=3, backoff=10, backoff_until=NEXT, proving=2)
    assert BOOKS.where(SENDING, "circuit") == Owed(circuit=14, in_hand=3, backoff=10, backoff_until=NEXT, proving=2)


def test_what_a_paused_or_scheduled_send_owes_waits_for_the_send_whatever_its_provider_does() -> None:
    assert BOOKS.where(SendStatus.PAUSED, "circuit") == Owed(paused=24, in_hand=3, proving=2)
    assert BOOKS.where(SendStatus.SCHEDULED, None) == Owed(scheduled=24, in_hand=3, proving=2)


def test_the_ledgers_json_is_read_and_what_it_does_not_name_is_nothing() -> None:
    read = ChannelBooks.read(5, {"sent": 3, "waiting": 2, "next_at": NEXT.isoformat(), "of_a_newer_version": 1})
    assert read == ChannelBooks(accepted=5, sent=3, waiting=2, next_at=NEXT)
    assert {field.name for field in fields(Owed)} >= {"ready", "gate", "circuit", "isolated", "hold", "cap"}

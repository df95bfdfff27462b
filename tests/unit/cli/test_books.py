from typing import Any

from admin.cli.books import accepted_in, books_table, is_over, settled_in, summary
from admin.cli.table import as_table


def _send(**given: Any) -> dict[str, Any]:
    books = {
        "accepted": 5, "sent": 2, "failed": 1, "dead_lettered": 0, "suppressed": 0, "cancelled": 0, "expired": 0,
        "unsure": 0, "owed": 2, "waiting": 1, "sending": 1, "retrying": 0, "unaccounted": 0,
    }  # fmt: skip
    return {
        "id": "01890a5d-ac96-774b-bcce-b302099a8057",
        "name": "Spring",
        "status": "sending",
        "mode": "live",
        "created_at": "2026-11-30T16:12:29Z",
        "duplicates": {"email": 1, "sms": 0},
        "segments": None,
        "books": {"email": books},
        **given,
    }


def test_the_books_leave_out_columns_that_are_zero_everywhere() -> None:
    assert books_table(_send()) == "channel  accepted  sent  failed  owed\ne-mail          5     2       1     2"


def test_a_difference_in_the_books_cannot_be_overlooked() -> None:
    send = _send()
    send["books"]["email"] |= {"sent": 1, "unaccounted": 1}

    assert "UNACCOUNTED: 1" in books_table(send)


def test_a_summary_names_the_send_its_state_and_what_was_dropped() -> None:
    text = summary(_send(status="paused", pause_reason="the sender is not allowed"))

    assert "“Spring”" in text
    assert "paused: the sender is not allowed" in text
    assert "1 duplicate address was dropped" in text


def test_one_segment_is_one_segment() -> None:
    assert summary(_send(segments=1)).splitlines()[1] == "sending · live key · 1 SMS segment"
    assert summary(_send(segments=1_200)).splitlines()[1] == "sending · live key · 1,200 SMS segments"


def test_a_cancelled_send_is_over_only_when_nothing_is_owed() -> None:
    send = _send(status="cancelled")

    assert (accepted_in(send), settled_in(send)) == (5, 3)
    assert not is_over(send)
    send["books"]["email"] |= {"owed": 0, "cancelled": 2}
    assert is_over(send)
    assert not is_over(_send(status="paused"))


def test_a_table_aligns_numbers_to_the_right_and_words_to_the_left() -> None:
    assert as_table(("name", "n"), [("a", 1), ("bc", 12_345), ("d", None)]) == (
        "name       n\na          1\nbc    12,345\nd          –"
    )
    assert as_table(("name", "n"), []) == "name  n"

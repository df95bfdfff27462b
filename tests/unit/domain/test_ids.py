import time
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.domain.ids import IdError, delivery_id, delivery_key, new_send_id, parse_delivery_id, parse_send_id

SEND = UUID("01937a5e-3c00-7000-8000-0123456789ab")


def test_a_send_id_is_a_uuid_of_version_seven_that_carries_the_time() -> None:
    before = time.time_ns() // 1_000_000
    made = new_send_id()
    after = time.time_ns() // 1_000_000
    assert made.version == 7
    assert made.variant == "specified in RFC 4122"
    assert before <= made.int >> 80 <= after


def test_a_later_send_sorts_later_and_no_two_are_the_same() -> None:
    made = [new_send_id() for _ in range(1_000)]
    assert len(set(made)) == 1_000
    stamps = [one.int >> 80 for one in made]
    assert stamps == sorted(stamps)


@given(st.uuids(), st.integers(0, 999_999_999))
def test_a_delivery_id_comes_back_as_it_was(send: UUID, row_no: int) -> None:
    assert parse_delivery_id(delivery_id(send, row_no)) == (send, row_no)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        str(SEND),
        f"{SEND}.",
        f".{SEND}",
        f"{SEND}.-1",
        f"{SEND}.+1",
        f"{SEND}. 1",
        f"{SEND}.1.2",
        f"{SEND}.1e3",
        f"{SEND}.\u0661",
        f"{SEND}.\u00b2",
        f"{SEND}.1234567890",
        f"{SEND.hex}.1",
        f"{{{SEND}}}.1",
        f"urn:uuid:{SEND}.1",
        "not-a-uuid.1",
    ],
)
def test_what_is_not_a_delivery_id_is_refused(text: str) -> None:
    with pytest.raises(IdError):
        parse_delivery_id(text)


def test_a_send_id_is_read_in_either_case_and_in_no_other_form() -> None:
    assert parse_send_id(str(SEND).upper()) == SEND
    for text in ("", "x", SEND.hex, f"{{{SEND}}}", f"urn:uuid:{SEND}", f" {SEND}", f"{SEND}\n", f"{SEND}\0"):
        with pytest.raises(IdError):
            parse_send_id(text)


def test_a_refused_id_is_not_repeated_in_the_error() -> None:
    with pytest.raises(IdError) as caught:
        parse_send_id("person@example.com")
    assert "person" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_the_key_of_a_delivery_never_changes_between_releases() -> None:
    # A provider compares keys over days: another value here would make every retry under way a second message.
    assert delivery_key(SEND, 7, 0) == UUID("e62a04a1-d5d9-542d-b2c4-5682eccdce1e")


def test_retries_keep_the_key_and_a_requeue_row_or_send_makes_another() -> None:
    other = uuid4()
    keys = {delivery_key(send, row, epoch) for send in (SEND, other) for row in (1, 11) for epoch in (0, 1)}
    assert len(keys) == 8
    assert delivery_key(SEND, 1, 0) == delivery_key(SEND, 1, 0)
    assert delivery_key(SEND, 1, 0).version == 5

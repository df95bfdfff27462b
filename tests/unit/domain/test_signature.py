"""Failures with one cause share a signature."""

import pytest

from shared.domain.masking import mask_text
from shared.domain.signature import MAX_TITLE_CHARS, SIGNATURE_VERSION, FailureSignature, failure_signature


def sign(detail: str, **changed: str) -> FailureSignature:
    fields = {"channel": "email", "provider": "smtp", "outcome_class": "permanent", "code": "550", **changed}
    return failure_signature(detail=detail, **fields)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("5.1.1 <jane@example.com>: User unknown", "5.1.1 <bob.x+1@example.net>: User unknown"),
        ("5.1.1 <jane@example.com>: User unknown", "5.1.1 bob@example.net: user unknown"),
        ("The 'To' number +16045550123 is not valid", "The 'To' number (604) 555-0199 is not valid"),
        ("Queue id 4F2A91C0D3 deferred, retry in 300 s", "Queue id BEEFFACE deferred, retry in 20 s"),
        ("id 123e4567-e89b-12d3-a456-426614174000 gone", "id 223e4567-e89b-12d3-a456-426614174001 gone"),
        ('no template "welcome"', 'no template "good bye"'),
        ("To: Jane Doe <jane@example.com> refused", "To: <bob@example.com> refused"),
        ("quota   exceeded\r\n", "quota exceeded"),
    ],
)
def test_one_cause_is_one_group(one: str, other: str) -> None:
    assert sign(one) == sign(one)
    assert sign(one).id == sign(other).id
    assert sign(mask_text(one)) == sign(one)


def test_another_cause_is_another_group() -> None:
    ids = {
        sign("user unknown").id,
        sign("mailbox full").id,
        sign("user unknown", code="551").id,
        sign("user unknown", provider="ches").id,
        sign("user unknown", channel="sms").id,
        sign("user unknown", outcome_class="transient").id,
    }
    assert len(ids) == 6


def test_a_signature_is_twelve_hexadecimal_digits_a_title_and_a_version() -> None:
    signature = sign("5.1.1 <jane@example.com>: User unknown in table")
    assert signature == ("8be37a135e90", "550: User unknown in table", SIGNATURE_VERSION)


@pytest.mark.parametrize("detail", ["", "12345", "jane@example.com"])
def test_a_failure_without_words_is_titled_by_its_code(detail: str) -> None:
    assert sign(detail).title == "550"


def test_a_title_shows_no_address_and_fits_a_row() -> None:
    signature = sign("<jane@example.com> " + "very bad " * 100, code="jane@example.com")
    assert "jane" not in signature.title
    assert len(signature.title) == MAX_TITLE_CHARS


def test_text_that_cannot_be_stored_is_signed_all_the_same() -> None:
    assert sign("\ud800 broken\0text").title.isprintable()

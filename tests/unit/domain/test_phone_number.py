"""Telephone numbers of recipients."""

import random

import phonenumbers
import pytest

from shared.domain.address import AddressError, parse_phone


@pytest.mark.parametrize(
    ("text", "region", "e164"),
    [
        ("+16045550123", None, "+16045550123"),
        ("+1 604 555 0123", None, "+16045550123"),
        ("(604) 555-0123", "CA", "+16045550123"),
        ("1-604-555-0123", "CA", "+16045550123"),
        ("604.555.0123", "US", "+16045550123"),
        ("6045550123", "CA", "+16045550123"),
        ("16045550123", "CA", "+16045550123"),
        ("0016045550123", "GB", "+16045550123"),
        ("011 44 7700 900123", "CA", "+447700900123"),
        ("07700 900123", "GB", "+447700900123"),
        ("+44 (0)7700 900123", None, "+447700900123"),
        ("447700900123", "GB", "+447700900123"),
        ("+7 912 345 67 89", "GB", "+79123456789"),
        ("07912345678", "GB", "+447912345678"),
        ("tel:+16045550123", None, "+16045550123"),
        ("TEL:+1-604-555-0123", None, "+16045550123"),
        ("\u202a+1 604\u00a0555\u20110123\u202c\u200b", None, "+16045550123"),
        ("+1 (604) 555-0123 ", None, "+16045550123"),
        ("＋1６０４５５５０１２３", None, "+16045550123"),
    ],
)
def test_every_spelling_of_a_number_is_one_number(text: str, region: str | None, e164: str) -> None:
    assert parse_phone(text, region) == e164


@pytest.mark.parametrize(
    ("text", "region", "problem"),
    [
        ("604 555 0123", None, "no country code"),
        ("07700 900123", None, "no country code"),
        ("0016045550123", None, "no country code"),
        ("0016045550123", "CA", "digits"),
        ("447700900123", "CA", "digits"),
        ("555-0123", "CA", "digits"),
        ("+1 604 555 012", None, "digits"),
        ("+1 604 555 01234", None, "digits"),
        ("+999 123456789", None, "country code"),
        ("604-555-0123 x5", "CA", "extension"),
        ("604-555-0123;ext=5", "CA", "extension"),
        ("604-555-0123#5", "CA", "extension"),
        ("1-800-FLOWERS", "US", "digits"),
        ("604-555-0123, 604-555-0124", "CA", "digits"),
        ("604-555-0123 / 604-555-0124", "CA", "telephone"),
        ("Jane +16045550123", None, "digits"),
        ("tel:tel:+16045550123", None, "digits"),
        ("", "CA", "digits"),
        ("+", None, "telephone"),
        ("---", "CA", "telephone"),
        ("6045550123\0", "CA", "digits"),
        ("604 555 0123", "ZZ", "country code"),
        ("6.04555E+09", "CA", "scientific notation; make its column text"),
        ("1,60455E+10", None, "scientific notation"),
        ("6" * 100_000, "CA", "telephone"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_is_not_one_whole_number_is_refused_with_the_reason(text: str, region: str | None, problem: str) -> None:
    with pytest.raises(AddressError, match=problem) as caught:
        parse_phone(text, region)
    assert "555" not in str(caught.value)


def test_numbers_reserved_for_fiction_are_accepted() -> None:
    assert parse_phone("+447700900123", None) == "+447700900123"


def corpus() -> list[str]:
    """Make North American numbers in the ways people write them, some a digit wrong."""
    choose = random.Random(1)
    made = []
    for _ in range(1_500):
        area, exchange, line = (str(choose.randrange(10**size)).zfill(size) for size in (3, 3, 4))
        area = choose.choice([area, f"({area})", "604", "(604)"])
        first, second, third = choose.choices(["", " ", ".", "-", "  ", ") "], weights=[4, 4, 4, 4, 1, 1], k=3)
        country = choose.choice(["", "", "1", "+1", "+", "11"])
        made.append(f"{country}{first if country else ''}{area}{second}{exchange}{third}{line}")
    return made


@pytest.mark.parametrize("region", ["CA", "US", "GB", None])
def test_the_fast_way_agrees_with_libphonenumber(region: str | None) -> None:
    wrong = [text for text in corpus() if parse_or_none(text, region) != ask_library(text, region)]
    assert wrong == []


def parse_or_none(text: str, region: str | None) -> str | None:
    try:
        return parse_phone(text, region)
    except AddressError:
        return None


def ask_library(text: str, region: str | None) -> str | None:
    try:
        number = phonenumbers.parse(text, region)
    except phonenumbers.NumberParseException:
        return None
    if phonenumbers.is_possible_number_with_reason(number) != phonenumbers.ValidationResult.IS_POSSIBLE:
        return None
    return phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164)

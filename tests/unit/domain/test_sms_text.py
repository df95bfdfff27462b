"""Segments, by the numbers of the standards."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.domain.sms_text import GSM_PART, GSM_SINGLE, UCS_PART, UCS_SINGLE, segments


@pytest.mark.parametrize(
    ("text", "encoding", "units", "count"),
    [
        ("", "GSM-7", 0, 0),
        ("a", "GSM-7", 1, 1),
        ("a" * 160, "GSM-7", 160, 1),
        ("a" * 161, "GSM-7", 161, 2),
        ("a" * 306, "GSM-7", 306, 2),
        ("a" * 307, "GSM-7", 307, 3),
        ("a" * 159 + "€", "GSM-7", 161, 2),
        ("a" * 158 + "€", "GSM-7", 160, 1),
        ("[" * 80, "GSM-7", 160, 1),
        ("€" * 81, "GSM-7", 162, 2),
        ("a" * 152 + "€" + "a" * 152, "GSM-7", 306, 3),
        ("a" * 151 + "€" + "a" * 153, "GSM-7", 306, 2),
        ("Ŵ" * 70, "UCS-2", 70, 1),
        ("Ŵ" * 71, "UCS-2", 71, 2),
        ("Ŵ" * 134, "UCS-2", 134, 2),
        ("Ŵ" * 135, "UCS-2", 135, 3),
        ("{" * 69 + "Ŵ", "UCS-2", 70, 1),
        ("😀" * 35, "UCS-2", 70, 1),
        ("😀" * 36, "UCS-2", 72, 2),
        ("😀" * 66, "UCS-2", 132, 2),
        ("😀" * 67, "UCS-2", 134, 3),
        ("a" * 66 + "😀" + "a" * 66, "UCS-2", 134, 3),
        ("Ç", "GSM-7", 1, 1),
        ("ç", "UCS-2", 1, 1),
        ("éèàùìòñüöäßÆæØøÅå£¥§¿¡ΔΦΓΛΩΠΨΣΘΞ¤_@$", "GSM-7", 36, 1),
        ("\f^{}\\[~]|€", "GSM-7", 20, 1),
        ("a\r\nb\n", "GSM-7", 5, 1),
        ("\u00a0", "UCS-2", 1, 1),
        ("“smart”", "UCS-2", 7, 1),
        ("it’s", "UCS-2", 4, 1),
        ("\t", "UCS-2", 1, 1),
        ("`", "UCS-2", 1, 1),
        ("ê", "UCS-2", 1, 1),
        ("\x1b", "UCS-2", 1, 1),
    ],
    ids=lambda value: repr(value)[:12],
)
def test_a_text_takes_so_many_units_and_segments(text: str, encoding: str, units: int, count: int) -> None:
    assert segments(text) == (encoding, units, count)


def fill_parts(costs: list[int], single: int, part: int) -> int:
    """Count parts the plain way: one after the other, a pair that does not fit begins the next."""
    if sum(costs) <= single:
        return 1 if costs else 0
    parts, room = 1, part
    for cost in costs:
        if cost > room:
            parts, room = parts + 1, part
        room -= cost
    return parts


@given(st.lists(st.sampled_from(["a" * 40, "a" * 151, "a", "€", "{", "Ŵ", "😀", "Ŵ" * 33]), max_size=20).map("".join))
@settings(max_examples=60, deadline=None)
def test_the_count_is_that_of_filling_the_parts_one_by_one(text: str) -> None:
    counted = segments(text)
    if counted.encoding == "GSM-7":
        costs = [2 if character in "€{" else 1 for character in text]
        expected = fill_parts(costs, GSM_SINGLE, GSM_PART)
    else:
        costs = [len(character.encode("utf-16-le")) // 2 for character in text]
        expected = fill_parts(costs, UCS_SINGLE, UCS_PART)
    assert (counted.units, counted.segments) == (sum(costs), expected)

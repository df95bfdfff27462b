import io
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admin.api.json_stream import JsonError, JsonReader, Repeated


class Dribble(io.BytesIO):
    """Gives a few bytes at a time, as a pipe may: every token is cut somewhere."""

    def __init__(self, data: bytes, most: int) -> None:
        super().__init__(data)
        self._most = most

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(self._most)


def whole(text: str | bytes, *, most: int = 7) -> Any:
    data = text.encode() if isinstance(text, str) else text
    reader = JsonReader(Dribble(data, most), max_value_chars=10_000)
    value = reader.value()
    reader.end()
    return value


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(JSON_VALUES, st.integers(1, 9), st.booleans())
def test_a_value_read_in_pieces_is_what_json_loads_gives(value: Any, most: int, ascii_only: bool) -> None:
    assert whole(json.dumps(value, ensure_ascii=ascii_only), most=most) == value


@given(st.lists(JSON_VALUES, max_size=8), st.integers(1, 9), st.sampled_from(["", " ", "\n\t "]))
def test_elements_come_one_by_one_and_again_from_their_offset(values: list[Any], most: int, space: str) -> None:
    listed = f"{space},{space}".join(json.dumps(value, ensure_ascii=False) for value in values)
    data = f'{space}{{{space}"é":{space}1,"rows"{space}:{space}[{space}{listed}{space}]{space}}}'.encode()
    reader = JsonReader(Dribble(data, most), max_value_chars=10_000)
    members = reader.members()
    assert next(members) == "é"
    assert reader.value() == 1
    assert next(members) == "rows"
    offset = reader.offset()
    assert list(reader.elements()) == values
    assert list(members) == []
    reader.end()
    assert data[offset : offset + 1] == b"["
    again = JsonReader(Dribble(data, most), max_value_chars=10_000, offset=offset)
    assert list(again.elements()) == values


@given(JSON_VALUES, st.integers(0, 200), st.integers(1, 9))
def test_a_document_cut_short_is_never_taken(value: Any, cut: int, most: int) -> None:
    text = json.dumps({"a": value})
    with pytest.raises(JsonError):
        whole(text[: cut % len(text)], most=most)


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("", 1, 1),
        ("{", 1, 2),
        ('{"a": 1,}', 1, 9),
        ('{\n  "a": tru\n}', 2, 8),
        ('["é",\n "b" "c"]', 2, 6),
        ("[1, 2] 3", 1, 8),
        ('{"a" 1}', 1, 6),
        ("{a: 1}", 1, 2),
        ("'a'", 1, 1),
        ('["\n"]', 1, 3),
        ('["\\x"]', 1, 3),
        ("[01]", 1, 3),
    ],
)
@pytest.mark.parametrize("most", [1, 100])
def test_a_fault_is_named_by_line_and_column(text: str, line: int, column: int, most: int) -> None:
    with pytest.raises(JsonError) as caught:
        whole(text, most=most)
    assert caught.value.line == line
    assert abs(caught.value.column - column) <= 1  # Python 3.13 points at the comma, 3.11 behind it


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("NaN", "NaN is not JSON"),
        ('{"a": -Infinity}', "-Infinity is not JSON"),
        ("9" * 5000, "too many digits"),
        ("1e99999999999999999999", "out of range"),
        ("[" * 100_000, "nested too deeply|longer than"),  # how deep Python goes depends on its version
        ('{"a":' * 100_000, "nested too deeply|longer than"),
        (b'"\xff"', "not UTF-8"),
        (b'"\xed\xa0\xbd"', "not UTF-8"),
        ('"' + "x" * 50_000, "longer than 10,000 characters"),
    ],
)
def test_what_json_does_not_know_or_nobody_can_hold_is_refused(text: str | bytes, says: str) -> None:
    with pytest.raises(JsonError, match=says):
        whole(text, most=4096)


def test_a_fraction_keeps_its_digits() -> None:
    assert whole("[1.10, 0, 1e2]") == [Decimal("1.10"), 0, Decimal("1E+2")]
    assert str(whole("1.10")) == "1.10"


def test_half_of_a_surrogate_pair_is_read_as_it_is_and_left_to_the_checks() -> None:
    assert whole('"\\ud83d"') == "\ud83d"
    assert whole('"\\ude00\\ud83d"') == "\ude00\ud83d"


def test_an_object_that_repeats_a_key_is_marked() -> None:
    value = whole('{"a": 1, "b": {"c": 1, "c": 2}}')
    assert not isinstance(value, Repeated)
    assert isinstance(value["b"], Repeated)
    assert value["b"].key == "c"


def test_lines_are_counted_over_what_the_buffer_has_let_go() -> None:
    rows = ",\n".join('{"to": "someone@example.com"}' for _ in range(100_000))
    reader = JsonReader(io.BytesIO(f"[{rows},\n  oops]".encode()), max_value_chars=10_000)
    with pytest.raises(JsonError) as caught:
        list(reader.elements())
    assert (caught.value.line, caught.value.column) == (100_001, 3)


@pytest.mark.parametrize("most", [1, 2, 3, 7, 1_000])
@pytest.mark.parametrize("bad", [b"\xff", b"\xe4rger", b"\xe2\x82"], ids=["no utf-8", "latin-1", "cut short"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "marked"])
def test_a_byte_that_is_not_utf_8_is_told_by_line_and_column(mark: bytes, bad: bytes, most: int) -> None:
    with pytest.raises(JsonError, match="not UTF-8") as refused:
        whole(mark + '{"näme":\n  "Jö'.encode() + bad, most=most)
    assert (refused.value.line, refused.value.column) == (2, 6)


@pytest.mark.parametrize("most", [1, 2, 3, 7, 1_000])
def test_a_byte_order_mark_before_the_document_is_passed_over(most: int) -> None:
    data = b"\xef\xbb\xbf" + b'[{"to": "x"}]'
    assert whole(data, most=most) == [{"to": "x"}]
    reader = JsonReader(Dribble(data, most), max_value_chars=100)
    assert reader.offset() == 3


def test_a_byte_order_mark_elsewhere_is_a_fault_at_its_place() -> None:
    with pytest.raises(JsonError) as refused:
        whole("\ufeff\ufeff{}")
    assert (refused.value.line, refused.value.column) == (1, 1)

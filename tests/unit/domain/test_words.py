from datetime import UTC, datetime, timedelta

import pytest

from shared.domain import words

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"), (-3, "0 s"), (59.9, "59 s"), (60, "1 min"), (3599, "59 min"), (3600, "1 h"), (3900, "1 h 5 min"),
        (36_000 + 300, "10 h"), (86_400, "1 day"), (3 * 86_400, "3 days"),
    ],
)  # fmt: skip
def test_a_duration_is_said_in_the_units_that_matter(seconds: float | None, text: str) -> None:
    assert words.duration(seconds) == text


@pytest.mark.parametrize(
    ("per_second", "text"),
    [(None, "–"), (0, "0/s"), (0.001, "under 1/min"), (0.5, "30/min"), (3.46, "3.5/s"), (1234, "1,234/s")],
)
def test_a_rate_never_reads_nought_where_something_moves(per_second: float | None, text: str) -> None:
    assert words.rate(per_second) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.44, "0.4 s"), (-0.01, "under 0.1 s"), (0.06, "0.1 s"), (61, "1 min")])
def test_a_short_span_is_neither_negative_nor_nothing(seconds: float, text: str) -> None:
    assert words.short_duration(seconds) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [(0, 0, "–"), (0, 10, "0 %"), (1, 10_000, "under 0.1 %"), (34, 1000, "3.4 %"), (9_999, 10_000, "99.9 %"),
     (3, 3, "100 %")],
)  # fmt: skip
def test_a_share_is_neither_nothing_nor_all_unless_it_is(part: int, whole: int, text: str) -> None:
    assert words.percent(part, whole) == text


@pytest.mark.parametrize(
    ("figure", "long", "short"),
    [(None, "–", "–"), (9_999, "9,999", "9,999"), (45_210, "45,210", "45 k"), (1_234_567, "1,234,567", "1.2 M")],
)
def test_a_number_is_whole_or_short(figure: int | None, long: str, short: str) -> None:
    assert (words.number(figure), words.short_number(figure)) == (long, short)


@pytest.mark.parametrize(
    ("ahead_s", "text"), [(0, "just now"), (-9, "just now"), (-240, "4 min ago"), (7200, "in 2 h")]
)
def test_a_moment_is_told_from_now(ahead_s: int, text: str) -> None:
    assert words.ago(NOW + timedelta(seconds=ahead_s), NOW) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.26, "+0.3 s"), (-12, "-12.0 s"), (-0.04, "0.0 s"), (0.0, "0.0 s")])
def test_a_clock_is_not_less_than_nothing_behind(seconds: float, text: str) -> None:
    assert words.skew(seconds) == text

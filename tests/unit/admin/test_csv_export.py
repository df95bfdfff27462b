import csv
import io
from datetime import UTC, datetime

import pytest
from flask import Flask

from admin.monitoring.csv_export import Cell, csv_response, safe_cell


def read(header: list[str], rows: list[list[Cell]], *, most: int = 100) -> list[list[str]]:
    with Flask("test").test_request_context():
        answer = csv_response("table", header, rows, most=most)
        text = answer.get_data(as_text=True)
    assert answer.headers["Content-Disposition"] == 'attachment; filename="table.csv"'
    return list(csv.reader(io.StringIO(text.removeprefix("\ufeff"))))


@pytest.mark.parametrize(
    "cell",
    ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", " =1", "=cmd|' /C calc'!A0", "＝1+1"],
)
def test_a_cell_that_a_spreadsheet_would_run_is_text(cell: str) -> None:
    assert str(safe_cell(cell)).startswith("'")


def test_numbers_and_ordinary_words_stay_as_they_are() -> None:
    assert read(["a", "b", "c"], [[-5, "CHES 400: bad = bad", None]]) == [
        ["a", "b", "c"],
        ["-5", "CHES 400: bad = bad", ""],
    ]


def test_addresses_are_masked_and_times_are_in_utc() -> None:
    rows = read(["a", "b"], [["told jane.doe@example.com", datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)]])

    assert rows[1] == ["told j***@e***.com", "2026-03-04T05:06:07+00:00"]


def test_a_file_is_cut_with_a_note_and_no_row_beyond_is_read() -> None:
    def rows() -> object:
        yield from ([number] for number in range(3))
        raise AssertionError("one row too many was read")

    found = read(["n"], rows(), most=2)  # type: ignore[arg-type]

    assert found[1:3] == [["0"], ["1"]]
    assert "first 2 rows" in found[3][0]
    assert len(found) == 4


def test_quotes_commas_and_line_ends_come_back_as_they_went() -> None:
    assert read(["a"], [['x "y", z\nw']])[1] == ['x "y", z\nw']

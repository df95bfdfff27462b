"""
Tables as CSV files: streamed, masked, bounded, and harmless in a spreadsheet.

A spreadsheet runs a cell that begins with one of `= + - @`, a tab or a line end as a formula, whoever wrote it; such
a cell gets an apostrophe before it, which the spreadsheet takes for "this is text". Numbers are left as they are.
Source: OWASP, "CSV Injection".
"""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain, islice

from flask import Response, stream_with_context

from shared.domain.masking import mask_text

#: Rows of one file. A spreadsheet ends at 1,048,576.
MAX_ROWS = 100_000

Cell = str | int | float | datetime | None

_STARTS_A_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
#: Bytes of text that are gathered before they are sent.
_CHUNK_CHARS = 16_384


def csv_response(name: str, header: Sequence[str], rows: Iterable[Sequence[Cell]], *, most: int = MAX_ROWS) -> Response:
    """
    Answer with a CSV file that is sent while its rows are read.

    Args:
        name: of the file, without its ending; ASCII letters, digits and hyphens.
        header: one word for each column.
        rows: read only as far as they are sent; addresses in their texts are masked here, once more.
        most: rows after which a last line says that there is more.
    """
    remaining = iter(rows)
    first = tuple(islice(remaining, 1))  # read now: what cannot be read at all is an answer, and no broken file
    answer = Response(stream_with_context(_texts(header, chain(first, remaining), most)), mimetype="text/csv")
    answer.headers["Content-Disposition"] = f'attachment; filename="{name}.csv"'
    answer.headers["Cache-Control"] = "no-store"
    return answer


def safe_cell(value: Cell) -> str | int | float:
    """Give the cell as it may stand in a file."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="seconds")
    if not isinstance(value, str):
        return value
    text = mask_text(value)
    return f"'{text}" if text.lstrip(" ").startswith(_STARTS_A_FORMULA) else text


def _texts(header: Sequence[str], rows: Iterable[Sequence[Cell]], most: int) -> Iterator[str]:
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    buffer.write("\ufeff")  # without it Excel reads UTF-8 as something else
    writer.writerow(header)
    for number, row in enumerate(rows):
        if number == most:
            writer.writerow([f"Cut here: the first {most:,} rows. Narrow the filter to see the others."])
            break
        writer.writerow([safe_cell(cell) for cell in row])
        if buffer.tell() >= _CHUNK_CHARS:
            yield buffer.getvalue()
            buffer.seek(0)
            buffer.truncate()
    yield buffer.getvalue()

"""
The text layer of CSV: bytes to records, whatever wrote them.

Encoding, line ends, delimiter and quotes are settled here (the rules stand in `recipients_csv`); what a record
means is not known here.
"""

import csv
import io
import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Protocol, runtime_checkable

#: characters of one cell at which reading stops: the csv module's limit, which is one for the whole process and
#: left as it is. A quote that is never closed swallows the rest of the file and ends here.
MAX_CELL_CHARS = 131_072

_DELIMITERS = ",;\t"

#: lines that a header with quoted line ends may take.
_MAX_HEADER_LINES = 100

_QUOTED = re.compile(r'"[^"]*"?')
_SEPARATOR_LINE = re.compile(r"sep=([,;\t])\s*", re.IGNORECASE)


@runtime_checkable
class SupportsRead(Protocol):
    """A binary stream, as far as it is needed here."""

    def read(self, size: int, /) -> bytes:
        """Give at most `size` bytes, none at the end."""
        ...


class CsvError(ValueError):
    """
    A fault of a file: raised where the file cannot be used, collected where a row cannot.

    `row` is the spreadsheet's number, `column` the header as written or the column's letter; None and 0 where
    the fault has no place. The text never repeats a cell.
    """

    def __init__(self, message: str, *, row: int = 0, column: str | None = None) -> None:
        place = ", ".join(filter(None, (f"row {row}" if row else "", f"column {column}" if column else "")))
        super().__init__(f"{place}: {message}" if place else message)
        self.row = row
        self.column = column
        self.message = message


def csv_records(source: SupportsRead | bytes | Iterable[str]) -> Iterator[list[str]]:
    """
    Give the records of a file, blank ones included: the n-th is row n of the spreadsheet.

    Bytes that are not UTF-8 come as lone surrogates (PEP 383), so that the row and cell can be named.

    Raises:
        CsvError: while iterating, with the row: a quote that is never closed or closed too early, a cell
            without end, broken UTF-16.
    """
    row = 0
    try:
        lines = _decoded_lines(source)
        head, delimiter = _read_head(lines)
        reader = csv.reader(itertools.chain(head, lines), delimiter=delimiter, strict=True, skipinitialspace=True)
        for record in reader:
            row += 1
            yield record
    except csv.Error as error:
        raise CsvError(_explain(str(error)), row=row + 1) from None
    except UnicodeDecodeError:
        raise CsvError(
            "the file is not readable as UTF-16 from about here; save it as CSV UTF-8", row=row + 1
        ) from None


def _explain(problem: str) -> str:
    if problem.startswith("field larger"):
        return f"a cell is longer than {MAX_CELL_CHARS:,} characters; is a closing quote missing?"
    if "expected after" in problem:
        return "text follows a closing quote; a quote within a quoted cell is written twice"
    return "a quoted cell begins here and never ends; the closing quote is missing"


def _read_head(lines: Iterator[str]) -> tuple[list[str], str]:
    """Read up to the end of the header row, and find the delimiter in it."""
    head: list[str] = []
    header = ""
    for line in lines:
        if not head and (stated := _SEPARATOR_LINE.fullmatch(line)):
            return [], stated[1]
        head.append(line)
        if header or line.strip(_DELIMITERS + " \r\n"):
            header += line
            if header.count('"') % 2 == 0 or len(head) > _MAX_HEADER_LINES:
                break
    outside_quotes = _QUOTED.sub("", header)
    return head, max(_DELIMITERS, key=outside_quotes.count)


def _decoded_lines(source: SupportsRead | bytes | Iterable[str]) -> Iterator[str]:
    if isinstance(source, str):
        return iter(io.StringIO(source.removeprefix("\ufeff"), newline=""))
    if isinstance(source, bytes):
        source = io.BytesIO(source)
    if isinstance(source, io.TextIOBase) or not isinstance(source, SupportsRead):
        return _without_mark(source)
    binary = io.BufferedReader(_Readable(source))
    start = binary.peek(2)[:2]
    if start in (b"\xff\xfe", b"\xfe\xff"):
        return io.TextIOWrapper(binary, encoding="utf-16", newline="")
    return io.TextIOWrapper(binary, encoding="utf-8-sig", errors="surrogateescape", newline="")


def _without_mark(lines: Iterable[str]) -> Iterator[str]:
    for number, line in enumerate(lines):
        yield line if number else line.removeprefix("\ufeff")


class _Readable(io.RawIOBase):
    """Anything with read(n), a request's body for one, as Python's own readers want it; never closes it."""

    def __init__(self, stream: SupportsRead) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        filled = 0
        while filled < len(buffer) and (data := self._stream.read(len(buffer) - filled)):
            buffer[filled : filled + len(data)] = data
            filled += len(data)
        return filled

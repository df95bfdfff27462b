"""
Recipients as people keep them: in a CSV that some spreadsheet wrote.

**Encoding** UTF-8, with or without byte-order mark, or UTF-16 with one; any other is refused, since guessing
would send broken names. **Line ends** LF, CRLF or CR, also within quoted cells. **Delimiter**: comma, semicolon
or tab, whichever stands most often outside quotes in the first row that is not blank (a tie goes to the first
named); a first line `sep=;` decides it, as in Excel.

**Header**: the first row that is not blank. Case, spaces and hyphens do not matter (`merge_values.normalise_name`).
A column called `to` holds the address; without one, a column with one of the usual names, and exactly one. A
header twice refuses the file, since nobody can say which is meant.

**Rows**: blank ones (no cell with more than spaces) are skipped. Cells are trimmed. An empty or absent cell is
a missing parameter, which the template may give a default for. A filled cell under no header is refused: an
unquoted comma has shifted the row.

**Numbers** in faults are those a spreadsheet shows: one for each record from 1, the header and blank rows
included, however many lines a quoted cell takes.
"""

from collections.abc import Iterable, Iterator, Set
from typing import Literal, TypedDict

from shared.domain.address import trim_edges
from shared.domain.csv_text import CsvError, SupportsRead, csv_records
from shared.domain.masking import mask_text
from shared.domain.merge_values import MAX_NAME_CHARS, check_param_value, normalise_name
from shared.domain.text_checks import check_storable

#: faults of one file that are kept; the others are counted.
MAX_FAULTS = 1_000

#: The names under which an address column is found, beside `to`; in their normalised spelling.
ADDRESS_NAMES = {
    "email": ("email", "e_mail", "email_address", "e_mail_address", "mail", "recipient"),
    "sms": ("phone", "phone_number", "mobile", "mobile_number", "mobile_phone", "cell", "sms", "recipient"),
}
#: characters; values below this need no closer look than the row had.
MAX_PLAIN_CHARS = 32_767

#: headers listed where none is the address.
SHOWN_HEADERS = 20


class CsvRecipient(TypedDict):
    """One recipient in the shape of the API. Parameters are texts, under their normalised names."""

    to: str
    params: dict[str, str]


Channel = Literal["email", "sms"]


def read_recipients(
    stream: SupportsRead | bytes | Iterable[str], *, channel: Channel, names: Set[str] | None = None
) -> "CsvRecipients":
    """
    Read the header of a file and give its rows, one at a time.

    Args:
        stream: a binary file or its bytes; or text, as a whole or in lines with their ends.
        channel: decides under which names the address column is found.
        names: the parameters wanted, so that unused columns are not carried along (`Template.names`); the
            address column can be among them. None gives every column but the address.

    Raises:
        CsvError: empty, not readable, or without one clear address column.
    """
    records = csv_records(stream)
    for number, cells in enumerate(records, start=1):
        header = [trim_edges(cell) for cell in cells]
        if any(header):
            _refuse_unreadable(cells, header, row=number)
            return CsvRecipients(records, header, header_row=number, channel=channel, names=names)
    raise CsvError("the file is empty; the first row names the columns, each further row is a recipient")


class CsvRecipients:
    """
    The recipients of one file; iterate once, in memory of one row.

    What was wrong with single rows is in `faults` afterwards (the first MAX_FAULTS of `fault_count`); such rows
    are left out. A CsvError raised on the way says that the file cannot be read on: keep nothing of it.
    """

    def __init__(
        self,
        records: Iterator[list[str]],
        header: list[str],
        *,
        header_row: int,
        channel: Channel,
        names: Set[str] | None,
    ) -> None:
        self.header = header
        self.faults: list[CsvError] = []
        self.fault_count = 0
        self._records = records
        self._row = header_row
        spellings = [normalise_name(cell) if len(cell) <= MAX_NAME_CHARS else "" for cell in header]
        self._refuse_repeated(spellings)
        self._address = self._find_address(spellings, channel)
        self._wanted = [
            (at, name)
            for at, name in enumerate(spellings)
            if name and (name in names if names is not None else at != self._address)
        ]
        self._unnamed = [at for at, cell in enumerate(header) if not cell]

    def __iter__(self) -> Iterator[tuple[int, CsvRecipient]]:
        """
        Give each recipient with the number of its row.

        Raises:
            CsvError: an open quote, a character that is not text, a cell without end; or no recipient at all.
        """
        width, is_empty = len(self.header), True
        for raw in self._records:
            self._row += 1
            cells = [cell.strip() for cell in raw]
            if not any(cells):
                continue
            is_empty = False
            if len(cells) < width:
                cells.extend([""] * (width - len(cells)))
            recipient = self._recipient(raw, cells)
            if recipient is not None:
                yield self._row, recipient
        if is_empty:
            raise CsvError("the file has a header and no recipients", row=self._row)

    def _recipient(self, raw: list[str], cells: list[str]) -> CsvRecipient | None:
        _refuse_unreadable(raw, self.header, row=self._row)
        faults_before = self.fault_count
        for at in (*self._unnamed, *range(len(self.header), len(cells))):
            if cells[at]:
                self._fault("is filled but has no header; put a cell that contains the delimiter in quotes", at)
        to = cells[self._address]
        if not to:
            self._fault("has no address", self._address)
        params: dict[str, str] = {}
        for at, name in self._wanted:
            if value := cells[at]:
                if len(value) > MAX_PLAIN_CHARS and (problem := check_param_value(value)) is not None:
                    self._fault(problem, at)
                params[name] = value
        return CsvRecipient(to=to, params=params) if self.fault_count == faults_before else None

    def _fault(self, message: str, at: int) -> None:
        self.fault_count += 1
        if len(self.faults) < MAX_FAULTS:
            self.faults.append(CsvError(message, row=self._row, column=_column(self.header, at)))

    def _refuse_repeated(self, spellings: list[str]) -> None:
        first: dict[str, int] = {}
        for at, name in enumerate(spellings):
            if name and first.setdefault(name, at) != at:
                message = f"is the same header as column {_letters(first[name])}; rename or remove one of them"
                raise CsvError(message, row=self._row, column=_column(self.header, at))

    def _find_address(self, spellings: list[str], channel: Channel) -> int:
        if "to" in spellings:
            return spellings.index("to")
        found = [at for at, name in enumerate(spellings) if name in ADDRESS_NAMES[channel]]
        if len(found) == 1:
            return found[0]
        if found:
            columns = " and ".join(_column(self.header, at) for at in found)
            raise CsvError(f"{columns} could hold the address; call the right one to", row=self._row)
        seen = ", ".join(mask_text(cell, limit=MAX_NAME_CHARS) for cell in self.header[:SHOWN_HEADERS] if cell)
        known = ", ".join(("to", *ADDRESS_NAMES[channel]))
        message = f"no column holds the address: the first row has {seen}; call one of them to (also known: {known})"
        raise CsvError(message, row=self._row)


def _refuse_unreadable(cells: list[str], header: list[str], *, row: int) -> None:
    text = "".join(cells)
    if text.isascii() and "\0" not in text:
        return
    for at, cell in enumerate(cells):
        if "\0" in cell:
            message = "contains a NUL character; is this UTF-16 without a byte-order mark? Save it as CSV UTF-8"
            raise CsvError(message, row=row, column=_column(header, at))
        if check_storable(cell) is not None:
            raise CsvError("is not UTF-8; save the file as CSV UTF-8", row=row, column=_column(header, at))


def _column(header: list[str], at: int) -> str:
    """Name a column as a person finds it: its letter, and its header masked, should it be no header."""
    written = mask_text(header[at], limit=MAX_NAME_CHARS) if at < len(header) else ""
    return f"{_letters(at)} ({written})" if written else _letters(at)


def _letters(at: int) -> str:
    """Count columns as spreadsheets do: A to Z, then AA."""
    letters = ""
    at += 1
    while at:
        at, rest = divmod(at - 1, 26)
        letters = chr(ord("A") + rest) + letters
    return letters

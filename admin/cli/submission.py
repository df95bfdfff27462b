"""The body of a send, written to disk row by row from a CSV, and the way back from the API's faults to its rows."""

import json
import re
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any

from admin.cli.fault import CommandError
from shared.domain.csv_text import CsvError
from shared.domain.merge import compile_template
from shared.domain.merge_syntax import TemplateError
from shared.domain.recipients_csv import Channel, CsvRecipients, read_recipients

#: The column that becomes a recipient's reference, your own id of them.
REFERENCE = "reference"
#: Faults that are printed; the others are counted.
SHOWN_FAULTS = 20

_PLACE = re.compile(r"/(?:email|sms)/recipients/(\d+)(?:/(.*))?")


@dataclass(frozen=True)
class Body:
    """What was written. `rows` holds the spreadsheet's row number of each recipient."""

    size: int
    rows: "array[int]"
    left_out: CsvRecipients

    def place_of(self, pointer: str) -> str:
        """Say where a fault is in the reader's own words: the row of the CSV, or the field of the submission."""
        match = _PLACE.fullmatch(pointer)
        if match is None or int(match[1]) >= len(self.rows):
            return pointer.strip("/").replace("/", ", ") or "the submission"
        what = (match[2] or "").removeprefix("params/").replace("~1", "/").replace("~0", "~")
        return f"row {self.rows[int(match[1])]}" + (f", {what}" if what else "")


def write_body(
    file: IO[bytes],
    csv_file: IO[bytes],
    *,
    channel: Channel,
    envelope: Mapping[str, Any],
    content: Mapping[str, str],
    shared_params: Mapping[str, str],
) -> Body:
    """
    Write the submission's JSON to `file`, holding one row of the CSV at a time.

    Raises: CommandError for a CSV that cannot be read, or a template that is none.
    """
    wanted = _names_in(content)
    rows = array("L")
    try:
        recipients = read_recipients(csv_file, channel=channel, names=wanted | {REFERENCE})
        file.write(_opening({**envelope, "params": dict(shared_params)}, channel, content))
        for row, recipient in recipients:
            reference = recipient["params"].get(REFERENCE)
            if reference is not None and REFERENCE not in wanted:
                del recipient["params"][REFERENCE]
            entry = {**recipient, "reference": reference} if reference is not None else recipient
            file.write(b",\n" if rows else b"\n")
            file.write(json.dumps(entry, separators=(",", ":")).encode())
            rows.append(row)
        file.write(b"\n]}}")
    except CsvError as error:
        raise CommandError(f"the CSV cannot be used: {error}") from None
    return Body(size=file.tell(), rows=rows, left_out=recipients)


def _names_in(content: Mapping[str, str]) -> frozenset[str]:
    """The params that the templates mention: other columns stay at home."""
    names: frozenset[str] = frozenset()
    for part in ("subject", "text", "html"):
        try:
            names |= compile_template(content.get(part, ""), kind="html" if part == "html" else "text").names
        except TemplateError as error:
            raise CommandError(f"the {part} is not a template: {error}") from None
    return names


def _opening(envelope: Mapping[str, Any], channel: Channel, content: Mapping[str, str]) -> bytes:
    """All of the document up to and with the bracket that opens the recipients."""
    whole = json.dumps({**envelope, channel: {**content, "recipients": []}})
    return whole.removesuffix("]}}").encode()

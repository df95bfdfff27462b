"""The body of a send, written to disk row by row from a CSV, and the way back from the API's faults to its rows."""

import json
import re
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import IO, Any

from admin.cli.fault import CommandError
from shared.domain.csv_text import CsvError
from shared.domain.merge import compile_template
from shared.domain.merge_syntax import TemplateError
from shared.domain.recipients_csv import Channel, CsvRecipients, read_recipients

#: The column that becomes a recipient's reference, your own id of them.
REFERENCE = "reference"
_PLACE = re.compile(r"/(?:email|sms)/recipients/(\d+)(?:/(.*))?")


@dataclass(frozen=True)
class Body:
    """
    What was written.

    `rows` holds the spreadsheet's row number of each entry; the first `count` are recipients. `left_out` tells of the
    rows that make none.
    """

    size: int
    count: int
    rows: "array[int]"
    left_out: CsvRecipients

    def explain(self, faults: Iterable[Mapping[str, str]]) -> list[str]:
        """Say the API's faults and the file's own in the reader's words: by field, or by row of the spreadsheet."""
        said = [(fault.row, str(fault)) for fault in self.left_out.faults]
        for fault in faults:
            match = _PLACE.fullmatch(fault["pointer"])
            if match is None or int(match[1]) >= len(self.rows):
                place = fault["pointer"].strip("/").replace("/", ", ") or "the submission"
                said.append((0, f"{place}: {fault['detail']}"))
            elif int(match[1]) < self.count:
                row, what = self.rows[int(match[1])], match[2] or ""
                what = what.removeprefix("params/").replace("~1", "/").replace("~0", "~")
                said.append((row, f"row {row}{', ' if what else ''}{what}: {fault['detail']}"))
        return [text for _, text in sorted(said, key=lambda each: each[0])]


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
        count = len(rows)
        if envelope.get("on_invalid") != "skip":
            _add_unfit(file, rows, recipients)
        file.write(b"\n]}}")
    except CsvError as error:
        raise CommandError(f"the CSV cannot be used: {error}") from None
    return Body(size=file.tell(), count=count, rows=rows, left_out=recipients)


def _add_unfit(file: IO[bytes], rows: "array[int]", recipients: CsvRecipients) -> None:
    """Put rows that make no recipient at the end as what no API takes: it refuses all, and names every fault."""
    for fault in recipients.faults:
        file.write((",\n" if rows else "\n").encode() + b'{"to":""}')
        rows.append(fault.row)


def _names_in(content: Mapping[str, str]) -> frozenset[str]:
    """The params that the templates mention: other columns stay at home."""
    names: frozenset[str] = frozenset()
    faults = []
    for part in ("subject", "text", "html"):
        try:
            names |= compile_template(content.get(part, ""), kind="html" if part == "html" else "text").names
        except TemplateError as error:
            faults.append(f"the {part} is not a template: {error}")
    if faults:
        raise CommandError("\n  ".join(faults))
    return names


def _opening(envelope: Mapping[str, Any], channel: Channel, content: Mapping[str, str]) -> bytes:
    """All of the document up to and with the bracket that opens the recipients."""
    whole = json.dumps({**envelope, channel: {**content, "recipients": []}})
    return whole.removesuffix("]}}").encode()

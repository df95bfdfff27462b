"""Tables as plain aligned text: the same in a terminal, a pipe and a log."""

from collections.abc import Sequence

from admin.cli.screen import cell

#: Between two columns.
_GAP = "  "


def as_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Align columns under their heads; numbers to the right, None as a dash."""
    texts = [["–" if value is None else _figure(value) for value in row] for row in rows]
    widths = [max(len(text) for text in column) for column in zip(head, *texts, strict=True)]
    numeric = [bool(rows) and all(isinstance(row[i], int | None) for row in rows) for i in range(len(head))]
    lines = []
    for line in [list(head), *texts]:
        cells = [
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, numeric, strict=True)
        ]
        lines.append(_GAP.join(cells).rstrip())
    return "\n".join(lines)


def _figure(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else cell(value)

"""Tables as plain aligned text: the same in a terminal, a pipe and a log."""

from collections.abc import Sequence

#: Between two columns.
_GAP = "  "


def as_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Align columns under their heads; numbers to the right, None as a dash."""
    texts = [["–" if cell is None else _figure(cell) for cell in row] for row in rows]
    widths = [max(len(text) for text in column) for column in zip(head, *texts, strict=True)]
    numeric = [bool(rows) and all(isinstance(row[i], int | None) for row in rows) for i in range(len(head))]
    lines = []
    for line in [list(head), *texts]:
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ]
        lines.append(_GAP.join(cells).rstrip())
    return "\n".join(lines)


def _figure(cell: object) -> str:
    return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else str(cell)

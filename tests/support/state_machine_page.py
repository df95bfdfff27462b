"""What docs/state-machine.md says: its diagrams' edges, and the table of who makes each."""

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "state-machine.md"

Edge = tuple[str, str]


def send_edges() -> set[Edge]:
    """The edges of the sends' diagram."""
    return _drawn("Sends")


def delivery_edges() -> set[Edge]:
    """The edges of the deliveries' diagram."""
    return _drawn("Deliveries")


def notification_edges() -> set[Edge]:
    """The edges of the notifications' diagram."""
    return _drawn("Notifications")


def makers(section: str) -> dict[Edge, list[str]]:
    """Per edge of a section's table the names of the functions that make it; empty where nothing makes it yet."""
    found: dict[Edge, list[str]] = {}
    for row in re.finditer(r"^\| (.+?) → (.+?) \| (.*?) \|", _section(section), re.MULTILINE):
        for source in _states(row[1]):
            for target in _states(row[2]):
                found.setdefault((source, target), []).extend(re.findall(r"`([\w.]+)`", row[3]))
    return found


def delivery_edges_made() -> set[Edge]:
    """The edges of deliveries that some function makes."""
    return {edge for edge, names in makers("Deliveries").items() if names}


def _states(cell: str) -> list[str]:
    return re.findall(r"`(\w+)`", cell)


def _drawn(section: str) -> set[Edge]:
    diagram = re.search(r"```mermaid\n(.*?)```", _section(section), re.DOTALL)
    assert diagram, f"no diagram under {section}"
    return set(re.findall(r"^\s*(\w+) --> (\w+)", diagram[1], re.MULTILINE))


def _section(name: str) -> str:
    parts = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return next(part for part in parts if part.startswith(name))

"""The table of docs/performance.md, made from the results kept beside it."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"

Line = Mapping[str, Any]


def write(page: Path, lines: Sequence[Line]) -> None:
    """
    Put results into a page between its markers; those of cases not measured this time stay as they were.

    The lines themselves, with every run, are kept beside the page, in a file of the same name ending in .jsonl.

    Raises: ValueError where the page has no markers.
    """
    text = page.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{page} has no {BEGIN} … {END}")
    kept = page.with_suffix(".jsonl")
    known = {line["case"]: line for line in map(json.loads, kept.read_text().splitlines())} if kept.exists() else {}
    known.update({line["case"]: line for line in lines})
    kept.write_text("".join(json.dumps(line) + "\n" for line in known.values()))
    page.write_text(f"{before}{BEGIN}\n{render(known)}{END}{after}")


def render(known: Mapping[str, Line]) -> str:
    """Give the sections between the markers."""
    parts = [_figures(known.values()), _cpu(known), _memory(known.get("redis_1m")), _machines(known.values())]
    return "\n".join(part for part in parts if part)


def _figures(lines: Any) -> str:
    rows = ["| case | figure | goal | measured | single runs |", "|---|---|---|---|---|"]
    for line in lines:
        if "skipped" in line:
            rows.append(f"| `{line['case']}` | – | – | not measured: {line['skipped']} | |")
        for figure, found in line.get("goals", {}).items():
            sign, bound = ("≥", found["at_least"]) if "at_least" in found else ("≤", found.get("at_most"))
            wanted = "" if bound is None else f"{sign} {_number(bound)}"
            single = ", ".join(map(_number, found["runs"]))
            mark = "" if found["met"] else " **(missed)**"
            rows.append(f"| `{line['case']}` | {figure} | {wanted} | {_number(found['figure'])}{mark} | {single} |")
    return "\n".join(rows) + "\n"


def _cpu(known: Mapping[str, Line]) -> str:
    rows = [
        "Microseconds of CPU per recipient:",
        "",
        "| case | deliveries/s | client | web | Postgres | Redis | all | sink (not counted) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for line in known.values():
        spent = line.get("cpu_us")
        if spent:
            client = spent.get("worker", spent.get("client", 0))
            web, postgres, store = (spent.get(name, 0) for name in ("web", "postgres", "redis"))
            all_ = client + web + postgres + store
            cells = (line["per_s"], client, web, postgres, store, all_, spent.get("sink", 0))
            rows.append(f"| `{line['case']}` | " + " | ".join(_number(cell) for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def _memory(line: Line | None) -> str:
    if line is None or "peak_mb" not in line:
        return ""
    rows = [
        f"Memory per process type in MB, at rest and at its peak over a send to {_number(line['recipients'])}:",
        "",
        "| process | at rest | peak |",
        "|---|---|---|",
    ]
    rows += [f"| `{name}` | {line['at_rest_mb'][name]} | {peak} |" for name, peak in line["peak_mb"].items()]
    return "\n".join(rows) + "\n"


def _machines(lines: Any) -> str:
    """Each machine and commit once, with the cases measured there."""
    seen: dict[str, list[str]] = {}
    for line in lines:
        facts = {name: value for name, value in line["machine"].items() if name != "load_before"}
        text = " · ".join(f"{name} {value}" for name, value in facts.items() if value != "")
        seen.setdefault(text, []).append(f"`{line['case']}`")
    return "Measured on:\n\n" + "".join(f"- {', '.join(cases)}: {text}\n" for text, cases in seen.items())


def _number(value: object) -> str:
    if isinstance(value, float) and not value.is_integer():
        return f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"
    return f"{value:,.0f}" if isinstance(value, int | float) else str(value)

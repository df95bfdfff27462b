"""What the System page's tables say, row by row: words, and the kind of each (ok, busy, warn, bad, off)."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from admin.monitoring.panels import View
from shared.domain.health_facts import Facts
from shared.domain.pace import BOUNDS_S
from shared.domain.words import duration
from shared.jobs import PAUSABLE
from shared.settings import Settings

_PROVIDER_KINDS = {
    "closed": "ok", "open": "bad", "half-open": "warn", "held": "warn", "isolated": "bad", "gate": "busy",
    "not configured": "off",
}  # fmt: skip
_PROVIDER_WORDS = {
    "closed": "closed", "open": "open", "half-open": "half-open, probing", "held": "held",
    "isolated": "not set up right", "gate": "told to wait", "not configured": "not configured",
}  # fmt: skip
_QUEUE_KINDS = {
    "moving": "ok", "idle": "ok", "no worker": "bad", "not moving": "bad", "arriving faster": "warn", "paused": "warn",
}  # fmt: skip
_WORKER_KINDS = {"running": "ok", "shutting down": "busy", "late": "warn", "gone": "off", "not consuming": "bad"}


def _facts(view: View) -> Facts:
    return Facts(view.snapshot.document, view.now, any_age=True)


def foundations(view: View) -> Mapping[str, object]:
    """Four lines: Postgres, Redis, the reconciler, and the snapshot itself."""
    document, facts = view.snapshot.document, _facts(view)
    postgres, redis, recovery = (facts.data(name) for name in ("postgres", "redis", "recovery"))
    late = {warning["rule"]: warning for warning in document["warnings"]}
    rows = [
        _store_row("Postgres", document["stores"]["postgres"], document, postgres.get("latency_ms"), "the ledger"),
        _store_row("Redis", document["stores"]["redis"], document, redis.get("ping_ms"), "queues and shared state"),
    ]
    found = late.get("ReconcilerLate")
    rows.append(
        {
            "name": "Reconciler",
            "word": "late" if found else "ok" if recovery.get("last_pass_at") else "no pass yet",
            "kind": "bad" if found else "ok" if recovery.get("last_pass_at") else "off",
            "since": found["since"] if found else None,
            "last_ok": recovery.get("last_pass_at"),
            "took_ms": None if recovery.get("last_pass_s") is None else recovery["last_pass_s"] * 1000,
            "note": recovery.get("last_pass_error") or "finds what got lost",
        }
    )
    bad = {
        name: entry["since"] for name, entry in document["sections"].items() if entry["status"] != "ok"
    }  # a section that nobody samples yet is among them
    rows.append(
        {
            "name": "Snapshot",
            "word": "parts missing" if bad else "ok",
            "kind": "warn" if bad else "ok",
            "since": min((since for since in bad.values() if since), default=None),
            "last_ok": document["at"],
            "took_ms": None,
            "note": f"not readable: {', '.join(sorted(bad))}" if bad else "what these pages are made of",
        }
    )
    clock = late.get("ClockLate")
    if clock:
        rows[2]["note"] = clock["text"]
    return {"foundations": rows}


def _store_row(
    name: str, store: Mapping[str, Any], document: Mapping[str, Any], took_ms: float | None, note: str
) -> dict[str, Any]:
    up = store["status"] == "ok"
    return {
        "name": name,
        "word": "ok" if up else "down",
        "kind": "ok" if up else "bad",
        "since": store["since"],
        "last_ok": document["at"] if up else store["since"],
        "took_ms": took_ms if up else None,
        "note": note,
    }


def provider_rows(view: View) -> Mapping[str, object]:
    """Each provider with its circuit, its calls, what it last took and refused, and who holds it."""
    facts = _facts(view)
    rates = facts.data("traffic").get("per_minute") or {}
    rows = []
    for row in facts.providers():
        hold, isolation = row["hold"], row["isolation"]
        error = row["last_error"]
        why = None
        if hold:
            why = f"by {hold['by']}: {hold['reason']}"
        elif isolation:
            why = isolation["reason"]
        elif row["missing"]:
            why = f"set {', '.join(row['missing'])}"
        rows.append(
            {
                **row,
                "account": f"{row['provider']}:{row['credential']}",
                "channels": sorted({served["channel"] for served in row["serves"] if served["mode"] == "live"}),
                "shown": _PROVIDER_WORDS[row["word"]],
                "kind": _PROVIDER_KINDS[row["word"]],
                "why": why,
                "error": error,
                "slot_wait": _slot_wait(row["slot_wait_p95_s"]),
                "per_minute": rates.get(row["provider"], 0.0),
            }
        )
    return {"providers": rows}


def _slot_wait(p95_s: float | None) -> str | None:
    if p95_s is None:
        return None
    return "slots at once" if p95_s < BOUNDS_S[0] else f"slots after {p95_s:.1f} s"


def queue_rows(view: View) -> Mapping[str, object]:
    """Each queue with its messages, what is due on it, how it is, and who paused it."""
    facts = _facts(view)
    paused = facts.paused_queues()
    rows = []
    for row in view.data("queues").get("queues", []):
        works = [work for work in facts.rows("work", "due") if work["queue"] == row["queue"]]
        going = [work for work in works if facts.may_go(work)]
        pause = paused.get(row["queue"])
        word = "paused" if pause else row["health"]
        rows.append(
            {
                **row,
                "due": sum(work["due"] for work in works),
                "held_back": sum(work["due"] for work in works if work not in going),
                "oldest_due_at": min((work["oldest_due_at"] for work in going if work["oldest_due_at"]), default=None),
                "word": word,
                "kind": "off" if word == "no worker" and not row["no_worker_since"] else _QUEUE_KINDS[word],
                "why": _why_queue(row, pause, facts),
                "pause": pause,
                "may_pause": row["queue"] in PAUSABLE,
            }
        )
    return {"queues": rows}


def _why_queue(row: Mapping[str, Any], pause: Mapping[str, Any] | None, facts: Facts) -> str | None:
    if pause:
        return f"by {pause['by']}: {pause['reason']}"
    if row["health"] == "not moving":
        return f"{duration(facts.age_s(row['oldest_at']))}; its workers finish nothing"
    if row["health"] == "arriving faster":
        return f"for {row['growing_minutes']} min"
    return None


def worker_rows(view: View) -> Mapping[str, object]:
    """Each worker process with its state; versions that differ from the newest are marked."""
    rows = view.data("workers").get("workers", [])
    newest = max(((row["started_at"], row["version"]) for row in rows), default=(None, None))[1]
    found = []
    for row in rows:
        word = row["word"].capitalize()
        if row["word"] == "shutting down" and row["drain_s"]:
            word = f"Shutting down: {row['seconds_left']:.0f} s of {row['drain_s']:.0f} s left"
        kind = _WORKER_KINDS[row["word"]]
        found.append({**row, "shown": word, "shape": kind, "other_version": row["version"] != newest})
    return {"workers": found, "commands": None if found else _worker_commands()}


@cache
def _worker_commands() -> str:
    """The lines of the Procfile that start workers; nothing where it was not installed beside the code."""
    file = Path(__file__).parents[2] / "Procfile"
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return "\n".join(line for line in lines if line.startswith(("worker", "clock")))


def recovery_rows(view: View) -> Mapping[str, object]:
    """What the passes did, and the warning where the last is too old."""
    late = [warning for warning in view.snapshot.document["warnings"] if warning["panel"] == "recovery"]
    recoveries = [
        {
            **each,
            "did": "; ".join(
                f"{kind}: " + ", ".join(f"{n:,} {word.replace('_', ' ')}" for word, n in counts.items() if n)
                for kind, counts in each["counts"].items()
            ),
        }
        for each in view.data("recovery").get("recoveries", [])
    ]
    return {"late": late, "recoveries": recoveries}


def threshold_rows(settings: Settings) -> list[tuple[str, str]]:
    """The thresholds in force, by the names of their settings."""
    names = [name for name in type(settings).model_fields if name.startswith("monitoring_")]
    return [(name.upper(), f"{getattr(settings, name):,}") for name in names]


def waiting_for_provider(view: View, provider: str, credential: str) -> int:
    """Deliveries that are due and go to a provider."""
    facts = _facts(view)
    rows = [row for row in facts.providers() if (row["provider"], row["credential"]) == (provider, credential)]
    return sum(facts.waiting_for(row) for row in rows)


def waiting_on_queue(view: View, queue: str) -> int:
    """Deliveries that are due on a queue."""
    return sum(work["due"] for work in _facts(view).rows("work", "due") if work["queue"] == queue)

"""Warnings under the verdict: five on each page, and System, where the rest can be read."""

from datetime import UTC, datetime

from flask import Flask
from werkzeug.datastructures import MultiDict

from admin.monitoring.panels import View, render_frame_part
from admin.monitoring.snapshot import STORES, Snapshot


def shown(app: Flask, page: str, *, warnings: int) -> str:
    """The verdict of a page while so many things are wrong."""
    now = datetime.now(UTC)
    found = [
        {"rule": "x", "severity": "warning", "text": f"Number {n} is wrong", "since": None, "panel": None}
        for n in range(warnings)
    ]
    document = {
        "v": 1, "at": now.isoformat(), "sections": {}, "warnings": found,
        "stores": {store: {"status": "ok", "since": None} for store in STORES},
        "verdict": {"text": found[0]["text"], "severity": "warning", "since": None},
    }  # fmt: skip
    with app.test_request_context():
        return render_frame_part("verdict", View(page, MultiDict(), Snapshot(document), now)).html


def test_five_are_shown_beside_the_verdict_and_the_rest_is_a_link_to_where_they_all_are(app: Flask) -> None:
    overview = shown(app, "overview", warnings=9)
    assert overview.count("is wrong</span>") == 6
    assert '<a href="/admin/monitoring/system">3 more, on System</a>' in overview
    system = shown(app, "system", warnings=9)
    assert system.count("is wrong</span>") == 9
    assert "more, on System" not in system


def test_as_many_as_fit_lead_nowhere(app: Flask) -> None:
    assert "more, on System" not in shown(app, "overview", warnings=6)

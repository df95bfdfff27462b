"""
What all pages of `/admin/monitoring` stand in: the blueprint, the frame around them, and how their panels are renewed.

Page modules import `pages` and put their routes on it; `admin.app` imports them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any

from flask import (
    Blueprint,
    Response,
    current_app,
    g,
    jsonify,
    make_response,
    redirect,
    render_template,
    request,
    url_for,
)
from werkzeug.datastructures import MultiDict
from werkzeug.wrappers import Response as AnyResponse

from admin.extensions import services
from admin.monitoring import snapshot_cache
from admin.monitoring.access import open_to_all, reads
from admin.monitoring.judging import thresholds_of
from admin.monitoring.panels import PAGES, View, make_view, poll_ms, render_frame_part, render_page, render_panel
from admin.monitoring.snapshot import Snapshot
from shared.domain.health_age import told_with_age

pages = Blueprint("monitoring", __name__, url_prefix="/admin/monitoring")
#: `/admin` itself.
doors = Blueprint("admin", __name__, url_prefix="/admin")

#: Most characters of the list of what a browser has.
_LONGEST_HAVE = 4_000


@dataclass(frozen=True)
class Tab:
    """One of the three; `key` opens it."""

    name: str
    path: str
    key: str


TABS = (
    Tab("Overview", "/admin/monitoring", "o"),
    Tab("Failures", "/admin/monitoring/failures", "f"),
    Tab("System", "/admin/monitoring/system", "s"),
)


#: What the foot of a page leads to, as far as it is there.
PLACES = (
    ("Sends", "/admin/monitoring/sends"),
    ("Operations", "/admin/monitoring/operations"),
    ("Digests", "/admin/monitoring/digests"),
    ("Audit", "/admin/monitoring/audit"),
    ("Sandbox inbox", "/inbox"),
    ("API", "/api/v1/docs"),
)


class BlindError(Exception):
    """
    There is nothing true to show: neither store answers, or (`is_early`) the first snapshot is not there yet.

    `since`: from when on neither answered, in ISO 8601.
    """

    def __init__(self, *, is_early: bool = False, since: str | None = None) -> None:
        super().__init__()
        self.is_early, self.since = is_early, since


def current_snapshot() -> Snapshot:
    """
    The snapshot for a page; where it is old, its verdict says that.

    Raises: BlindError.
    """
    try:
        found = snapshot_cache.snapshot()
    except TimeoutError as fault:
        raise BlindError(is_early=True) from fault
    if found.is_blind:
        raise BlindError(since=max(store["since"] for store in found.document["stores"].values()))
    now = datetime.now(UTC)
    return replace(found, document=told_with_age(found.document, thresholds_of(services().settings), now))


def page(name: str, template: str, *, path: Mapping[str, str] | None = None, **context: object) -> str:
    """
    Answer with a page: its template, filled from the snapshot and `context`. `path` is what its address's path says.

    Raises: BlindError.
    """
    view = make_view(name, current_snapshot(), request.args, **(path or {}))
    return render_page(template, view, **context)


def tab_counts(found: Snapshot) -> dict[str, int | None]:
    """The number beside each tab's name; None for none."""
    return {
        "Overview": None,
        "Failures": found.section("failures")["data"].get("count"),
        "System": len(found.document["warnings"]) or None,
    }


def current_tab(page: str) -> str | None:
    """The tab under which a page is found."""
    return PAGES[page].tab if page in PAGES else None


def places() -> list[tuple[str, str]]:
    """The names and addresses of PLACES that are served."""
    served = {rule.rule for rule in current_app.url_map.iter_rules()}
    return [(name, path) for name, path in PLACES if path in served]


def panel_address(panel: str) -> str:
    """Where a panel is seen: its page's tab, and the panel in it; dead letters of digests are a page of their own."""
    if panel == "dead_letters":
        return url_for("monitoring.digest_history", status="dead_lettered")
    for tab in TABS:
        found = PAGES.get(tab.name.lower())
        if found is not None and panel in found.panels:
            return f"{tab.path}#{panel}"
    return "/admin/monitoring/system"


@pages.before_app_request
def note_asked() -> None:
    """Keep the moment at which a page was asked for: whatever it reads for itself is at least that new."""
    g.asked_at = datetime.now(UTC)


@pages.app_context_processor
def surroundings() -> dict[str, object]:
    """What the frame's templates use."""
    return {
        "environment": services().settings.environment,
        "tabs": TABS,
        "tab_counts": tab_counts,
        "current_tab": current_tab,
        "panel_address": panel_address,
        "places": places,
        "asked_at": g.get("asked_at"),
    }


@doors.get("")
@open_to_all
def front_door() -> AnyResponse:
    """`/admin` leads to the Overview."""
    return redirect("/admin/monitoring")


@pages.get("/queues")
@reads
def queues() -> Response:
    """The snapshot as JSON."""
    return jsonify(current_snapshot().document)


@pages.get("/panels")
@reads
def panels() -> AnyResponse:
    """
    The panels of `page` that are not as in `have` ("name:hash,…"); other arguments are the page's own.

    `{"at", "now", "v", "status", "stale_since", "verdict", "panels": {name: {"hash", "html"}}, "poll_ms"}`. `verdict`
    and `tabs` are panels of every page. `status`: `ok`, or `stale` while a store is away; `stale_since`: since when the
    ledger is, or of when the snapshot is while no new one can be built. 404 for a page nobody named, 503 when neither
    store answers.
    """
    name = request.args.get("page", "")
    if name not in PAGES:
        return make_response(jsonify(error="no such page"), HTTPStatus.NOT_FOUND)
    own = MultiDict([item for item in request.args.items(multi=True) if item[0] not in {"page", "have"}])
    have = dict(part.split(":", 1) for part in request.args.get("have", "")[:_LONGEST_HAVE].split(",") if ":" in part)
    view = make_view(name, current_snapshot(), own)
    found = {panel.name: render_panel(panel, view) for panel in PAGES[name].panels.values() if panel.name in have}
    found |= {name: render_frame_part(name, view) for name in ("verdict", "tabs")}
    document = view.snapshot.document
    body: dict[str, Any] = {
        "at": document["at"],
        "now": view.now.isoformat(),
        "v": view.snapshot.version,
        "status": "stale" if any(view.snapshot.is_away(store) for store in ("postgres", "redis")) else "ok",
        "stale_since": _stale_since(view),
        "verdict": document["verdict"]["text"],
        "panels": {
            name: {"hash": panel.hash, "html": panel.html}
            for name, panel in found.items()
            if have.get(name) != panel.hash
        },
        "poll_ms": poll_ms(view),
    }
    return jsonify(body)


def _stale_since(view: View) -> str | None:
    since: str | None = view.snapshot.document["stores"]["postgres"]["since"]
    if since is None and view.now - view.snapshot.at > timedelta(
        milliseconds=services().settings.monitoring_snapshot_stale_ms
    ):
        return str(view.snapshot.document["at"])
    return since


@pages.app_errorhandler(BlindError)
def blind(error: BlindError) -> AnyResponse:
    """A page that needs no store, and says why there is no other."""
    if request.path in {url_for("monitoring.queues"), url_for("monitoring.panels")}:
        return make_response(jsonify(status="unavailable"), HTTPStatus.SERVICE_UNAVAILABLE)
    shown = render_template("monitoring/blind.html", is_early=error.is_early, since=error.since)
    return make_response(shown, HTTPStatus.SERVICE_UNAVAILABLE)


def view_of(name: str, **path: str) -> View:
    """A page's view, for a module that answers in its own way."""
    return make_view(name, current_snapshot(), request.args, **path)

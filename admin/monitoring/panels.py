"""
Panels: the parts of a page that are renewed while it is looked at.

The first load and every renewal render the same template, so that a page without JavaScript shows the same. A page
module names its panels once (`add_page`), puts each into its template with `{{ panel("name") }}`, and answers with
`render_page`.
"""

import hashlib
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from flask import current_app, render_template
from markupsafe import Markup
from werkzeug.datastructures import MultiDict

from admin.monitoring.access import may_act, note_ledger_away, why_not_act
from admin.monitoring.snapshot import SECTIONS, Snapshot
from shared.ledger.db import POSTGRES_AWAY

_log = logging.getLogger(__name__)

#: Milliseconds between two looks of a page that has no stream, and while an operation runs.
POLL_MS, BUSY_POLL_MS = 15_000, 5_000


@dataclass(frozen=True)
class View:
    """
    What a panel is rendered from: the snapshot, the moment (aware UTC), and the page's own arguments.

    `args` are those of the address, and what the page adds to them (the id in its path).
    """

    page: str
    args: MultiDict[str, str]
    snapshot: Snapshot
    now: datetime

    def data(self, section: str) -> Mapping[str, Any]:
        """A section's data, empty where there are none."""
        found: Mapping[str, Any] = self.snapshot.section(section)["data"]
        return found


@dataclass(frozen=True)
class Panel:
    """
    One panel. Its template is `monitoring/panels/<name>.html`: the inside, without the heading.

    The template has `view`, `data` (that of the first section) and whatever `context` gives. Data that are no longer
    sampled are shown with their age, and none with the reason; the template only ever sees data that are there.
    `context` reads for this panel alone; it may raise POSTGRES_AWAY.
    """

    name: str
    title: str
    sections: tuple[str, ...] = ()
    context: Callable[[View], Mapping[str, object]] | None = None


@dataclass(frozen=True)
class Page:
    """A page's panels. `tab` is where it is found; `is_busy`: an operation runs on it, and it looks more often."""

    panels: Mapping[str, Panel]
    tab: str
    is_busy: Callable[[View], bool] = lambda _: False


PAGES: dict[str, Page] = {}


def add_page(name: str, *panels: Panel, tab: str = "", is_busy: Callable[[View], bool] = lambda _: False) -> None:
    """Name a page and its panels; called at import of the page's module. `tab` is its own where it has one."""
    PAGES[name] = Page({panel.name: panel for panel in panels}, tab or name.capitalize(), is_busy)


@dataclass(frozen=True)
class Rendered:
    """A panel's HTML, and a hash that changes with what it says (ages aside: the browser counts them itself)."""

    html: str
    hash: str


#: What differs each time though the panel says the same: ages, and the tokens of forms.
_FLEETING = re.compile(r"(<time [^>]*>)[^<]*|(name=\"csrf_token\" value=\")[^\"]*")
#: Panels kept for those who look at the same snapshot; a bound for addresses with many different filters.
_MOST_KEPT = 500
_KEPT = "tidings-panels"


def rendered(template: str, **context: object) -> Rendered:
    """Render a template whose outermost element takes `data-hash="HASH"`."""
    html = render_template(template, **context)
    digest = hashlib.sha256(_FLEETING.sub(r"\1\2", html).encode()).hexdigest()[:12]
    return Rendered(html.replace('data-hash=""', f'data-hash="{digest}"', 1), digest)


def once(view: View, name: str, render: Callable[[], Rendered]) -> Rendered:
    """
    Render something that is made of the snapshot alone, once for all who look at it and may do the same.

    A hundred viewers ask for the same few panels every two seconds. What has a person's form in it is not shared.
    """
    version, kept = current_app.extensions.get(_KEPT, (0, {}))
    if version != view.snapshot.version:
        kept = {}
        current_app.extensions[_KEPT] = (view.snapshot.version, kept)
    key = (view.page, name, tuple(view.args.items(multi=True)), may_act(), why_not_act())
    found: Rendered | None = kept.get(key)
    if found is None:
        found = render()
        if "csrf_token" not in found.html and len(kept) < _MOST_KEPT:
            kept[key] = found
    return found


def render_frame_part(name: str, view: View) -> Rendered:
    """Render the verdict or the tabs, which are panels of every page; the verdict changes with the snapshot's age."""
    said = view.snapshot.document["verdict"]["text"]
    return once(view, f"frame/{name}/{said}", lambda: rendered(f"monitoring/{name}.html", view=view))


def render_panel(panel: Panel, view: View) -> Rendered:
    """Render one panel with its heading, its age where it is old, and the reason where there is nothing to show."""
    if panel.context is None:
        return once(view, panel.name, lambda: _render_panel(panel, view))
    return _render_panel(panel, view)


def _render_panel(panel: Panel, view: View) -> Rendered:
    entries = {name: view.snapshot.section(name) for name in panel.sections}
    bad = next((name for name, entry in entries.items() if entry["status"] == "unavailable"), None)
    bad = bad or next((name for name, entry in entries.items() if entry["status"] == "stale"), None)
    own: Mapping[str, object] = {}
    is_readable = True
    if panel.context is not None:
        try:
            own = panel.context(view)
        except POSTGRES_AWAY:
            _log.warning("panel_not_read", extra={"panel": panel.name})
            is_readable = False
    return rendered(
        "monitoring/panel.html",
        panel=panel,
        view=view,
        bad=entries[bad] if bad else None,
        reason=_reason(bad, view) if bad else "",
        is_readable=is_readable,
        data=entries[panel.sections[0]]["data"] if entries else {},
        **own,
    )


def _reason(section: str, view: View) -> str:
    found = SECTIONS.get(section)
    if found is not None and view.snapshot.is_away(found.store):
        return f"{found.store.capitalize()} does not answer"
    return "this could not be read"


def poll_ms(view: View) -> int:
    """Milliseconds between two looks of a page without a stream."""
    try:
        return BUSY_POLL_MS if view.page in PAGES and PAGES[view.page].is_busy(view) else POLL_MS
    except POSTGRES_AWAY:
        return POLL_MS


def render_page(template: str, view: View, **context: object) -> str:
    """Render a whole page; its template extends `monitoring/page.html`."""
    panels = PAGES[view.page].panels if view.page in PAGES else {}

    def panel(name: str) -> Markup:
        return Markup(render_panel(panels[name], view).html)  # noqa: S704  # rendered by a template that escapes

    return render_template(
        template,
        view=view,
        panel=panel,
        frame_part=lambda name: Markup(render_frame_part(name, view).html),  # noqa: S704  # as above
        poll_ms=poll_ms(view),
        live_query=urlencode(list(view.args.items(multi=True))),
        **context,
    )


def make_view(page: str, snapshot: Snapshot, args: Mapping[str, str] | MultiDict[str, str], **more: str) -> View:
    """Give a page's view of a snapshot; `more` is what its path says, and no argument of the address says otherwise."""
    if snapshot.is_away("postgres"):
        note_ledger_away()
    given = [item for item in MultiDict(args).items(multi=True) if item[0] not in more]
    return View(page, MultiDict([*given, *more.items()]), snapshot, datetime.now(UTC))

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

from flask import render_template
from markupsafe import Markup
from werkzeug.datastructures import MultiDict

from admin.monitoring.snapshot import Snapshot
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


_AGES = re.compile(r"(<time [^>]*>)[^<]*")


def rendered(template: str, **context: object) -> Rendered:
    """Render a template whose outermost element takes `data-hash="HASH"`."""
    html = render_template(template, **context)
    digest = hashlib.sha256(_AGES.sub(r"\1", html).encode()).hexdigest()[:12]
    return Rendered(html.replace('data-hash=""', f'data-hash="{digest}"', 1), digest)


def render_panel(panel: Panel, view: View) -> Rendered:
    """Render one panel with its heading, its age where it is old, and the reason where there is nothing to show."""
    entries = [view.snapshot.section(name) for name in panel.sections]
    bad = next((entry for entry in entries if entry["status"] == "unavailable"), None)
    bad = bad or next((entry for entry in entries if entry["status"] == "stale"), None)
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
        bad=bad,
        is_readable=is_readable,
        data=entries[0]["data"] if entries else {},
        **own,
    )


def poll_ms(view: View) -> int:
    """Milliseconds between two looks of a page without a stream."""
    return BUSY_POLL_MS if view.page in PAGES and PAGES[view.page].is_busy(view) else POLL_MS


def render_page(template: str, view: View, **context: object) -> str:
    """Render a whole page; its template extends `monitoring/page.html`."""
    panels = PAGES[view.page].panels if view.page in PAGES else {}

    def panel(name: str) -> Markup:
        return Markup(render_panel(panels[name], view).html)  # noqa: S704  # rendered by a template that escapes

    return render_template(
        template,
        view=view,
        panel=panel,
        frame_part=lambda name: Markup(rendered(f"monitoring/{name}.html", view=view).html),  # noqa: S704  # as above
        poll_ms=poll_ms(view),
        live_query=urlencode(list(view.args.items(multi=True))),
        **context,
    )


def make_view(page: str, snapshot: Snapshot, args: Mapping[str, str] | MultiDict[str, str], **more: str) -> View:
    """Give a page's view of a snapshot; `more` is what its path says."""
    return View(page, MultiDict([*MultiDict(args).items(multi=True), *more.items()]), snapshot, datetime.now(UTC))

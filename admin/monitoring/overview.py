"""`/admin/monitoring`: is it broken, for whom, is it us or the provider, is it moving, when is it over."""

from collections.abc import Mapping

from admin.monitoring import digest_section, flow_sections, last_hour
from admin.monitoring.access import reads
from admin.monitoring.frame import page, pages
from admin.monitoring.panels import Panel, View, add_page
from admin.monitoring.snapshot import SECTIONS

#: Whose import makes the sections that this page shows.
SECTION_MODULES = (flow_sections, last_hour, digest_section)


def _digests(view: View) -> Mapping[str, object]:
    """Digests have their place whether or not there are any channels to tell of."""
    entry = view.snapshot.section("digests") if "digests" in SECTIONS else None
    return {"digest_channels": entry["data"].get("channels", []) if entry else []}


add_page(
    "overview",
    Panel("channels", "Right now", ("channels",)),
    Panel("last_hour", "Last hour", ("last_hour",)),
    Panel("sends", "Sends in progress", ("sends",)),
    Panel("digests", "Digests", context=_digests),
)


@pages.get("")
@reads
def overview() -> str:
    """The page."""
    return page("overview", "monitoring/overview.html")

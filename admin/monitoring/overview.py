"""`/admin/monitoring`: is it broken, for whom, is it us or the provider, is it moving, when is it over."""

from admin.monitoring.access import reads
from admin.monitoring.frame import page, pages
from admin.monitoring.panels import add_page

add_page("overview")


@pages.get("")
@reads
def overview() -> str:
    """The page."""
    return page("overview", "monitoring/overview.html")

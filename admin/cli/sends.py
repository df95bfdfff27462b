"""`tidings show`, `cancel`, `pause`, `resume` and `deliveries`: one send, by its id."""

from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import click

from admin.cli.connection import with_api
from admin.cli.ids import SendId, SendOrDeliveryId
from admin.cli.screen import cell, say, say_json

if TYPE_CHECKING:
    from admin.cli.api_client import ApiClient

#: Deliveries asked for at a time.
_PAGE = 1000
#: Of a delivery's line, before the last error.
_COLUMNS = ("id", "status", "to", "attempt_count", "segments", "reference")


@click.command()
@click.argument("send_id", metavar="ID", type=SendOrDeliveryId())
@click.option("--watch", is_flag=True, help="Wait until it is settled.")
@click.option(
    "--deliveries",
    is_flag=True,
    help="List every delivery as well: id, status, address, attempts, segments, reference, last error.",
)
@click.option("--status", metavar="STATUS", help="Only deliveries of this status, such as failed.")
@click.option("--json", "as_json", is_flag=True, help="The API's answer as it is.")
@with_api
def show(api: "ApiClient", send_id: str, **given: Any) -> None:
    """Show a send and its books; or, for an id with a dot, one delivery with its attempts."""
    from admin.cli.books import summary
    from admin.cli.send import finish

    if "." in send_id:
        say_json(api.get(f"/deliveries/{send_id}"), indent=2)
        return
    if given["watch"]:
        finish(api, send_id)
    else:
        found = api.get(f"/sends/{send_id}")
        if given["as_json"]:
            say_json(found, indent=2)
        else:
            say(summary(found))
    if given["deliveries"] or given["status"]:
        _list_deliveries(api, send_id, status=given["status"], as_json=given["as_json"])


@click.command("list")
@click.option("--status", metavar="STATUS", help="Only sends of this status, such as sending.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Most lines.")
@with_api
def list_sends(api: "ApiClient", status: str | None, limit: int) -> None:
    """List sends, newest first."""
    from admin.cli.table import as_table

    query = urlencode({"limit": limit, **({"status": status} if status else {})})
    found = api.get(f"/sends?{query}")["sends"]
    head = ("id", "status", "accepted", "created", "name")
    rows = [
        (s["id"], s["status"], sum(s["accepted"].values()), s["created_at"][:16].replace("T", " "), s["name"])
        for s in found
    ]
    say(as_table(head, rows))


def _act(name: str, summary_line: str) -> click.Command:
    @click.command(name, help=summary_line)
    @click.argument("send_id", metavar="ID", type=SendId())
    @with_api
    def command(api: "ApiClient", send_id: str) -> None:
        from admin.cli.books import summary

        say(summary(api.post(f"/sends/{send_id}/{name}")))

    return command


cancel = _act("cancel", "Stop a send for good; what is sent stays sent.")
pause = _act("pause", "Hold a send until it is resumed.")
resume = _act("resume", "Let a held send go on.")


def _list_deliveries(api: "ApiClient", send_id: str, *, status: str | None, as_json: bool) -> None:
    query: dict[str, Any] = {"limit": _PAGE, **({"status": status} if status else {})}
    while True:
        page = api.get(f"/sends/{send_id}/deliveries?{urlencode(query)}")
        for delivery in page["deliveries"]:
            if as_json:
                say_json(delivery)
            else:
                say(_line(delivery))
        if page["next_cursor"] is None:
            return
        query["cursor"] = page["next_cursor"]


def _line(delivery: dict[str, Any]) -> str:
    """Tabs between the cells: it goes through `cut` and into a spreadsheet. The address is the tenant's own."""
    cells = [*(delivery[name] for name in _COLUMNS), " ".join((delivery["last_error"] or "").split())]
    return "\t".join("" if value is None else cell(value) for value in cells)

"""`tidings requeue`: what failed is tried again, after a look at what that means."""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import IO, TYPE_CHECKING, Any

import click

from admin.cli.fault import CommandError
from admin.cli.ids import DeliveryId, SendId
from admin.cli.operator import as_operator
from admin.cli.screen import cell, say
from admin.cli.send import Moment
from admin.cli.stores import ledger_transaction
from admin.cli.table import as_table

if TYPE_CHECKING:
    from uuid import UUID

    from shared.domain.requeue import RequeueFilter
    from shared.ledger.operations import Operation
    from shared.ledger.requeue import Preview

#: Deliveries above which a reason must be given, and above which their number must be typed.
_REASON_ABOVE, _TYPED_ABOVE = 100, 1_000
_OPTION = {"send_id": "send", "statuses": "status"}
_AGO = re.compile(r"(\d{1,4})(m|h|d)")
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


class Since(Moment):
    """A moment, or how long ago."""

    name = "time or 24h"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """`30m`, `24h` and `7d` are counted back from now."""
        if ago := _AGO.fullmatch(str(value)):
            return datetime.now().astimezone() - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        return super().convert(value, param, ctx)


@click.command()
@click.argument("delivery_ids", metavar="[DELIVERY_ID]...", nargs=-1, type=DeliveryId())
@click.option("--ids", "ids_file", type=click.File("r"), help="A file with more delivery ids, one a line; - is stdin.")
@click.option("--send", "send_id", metavar="ID", type=SendId(), help="Only deliveries of this send.")
@click.option("--tenant", metavar="NAME", help="Only this tenant's.")
@click.option("--channel", type=click.Choice(["email", "sms"]), help="Only on this channel.")
@click.option("--status", "statuses", metavar="LIST", help="Of dead_lettered, failed, unsure. [the first two]")
@click.option("--signature", metavar="SIG", help="Only those that failed for this cause.")
@click.option("--since", type=Since(), help="Only those settled since then: a time, or 30m, 24h, 7d.")
@click.option("--dry-run", is_flag=True, help="Only show what it would take and what it would leave out.")
@click.option("--reason", metavar="TEXT", help=f"Why; needed for more than {_REASON_ABOVE}. Kept in the audit.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--accept-duplicates", is_flag=True, help="Take unsure ones too: they may have been sent already.")
@click.option("--now", is_flag=True, help="Begin at once, without ten seconds to undo it.")
@click.option("--all-at-once", is_flag=True, help="Do not try a few first.")
@as_operator
def requeue(**given: Any) -> None:
    """
    Send again what failed: deliveries by their ids, or all that the options describe.

    Shows what it would do and asks. It is done in the background, a few first: `tidings operation show ID`.
    """
    from shared.ledger import operations, requeue

    asked = _asked(given)
    accepts = given["accept_duplicates"]
    with ledger_transaction() as connection:
        seen = requeue.judge(connection, asked, accepts_duplicates=accepts)
    _show(seen)
    if given["dry_run"]:
        return
    if seen.total == 0:
        raise CommandError("there is nothing to requeue")
    if seen.total > _REASON_ABOVE and not given["reason"]:
        raise CommandError(f"say why: --reason is needed for more than {_REASON_ABOVE} deliveries")
    if not given["yes"]:
        _confirm(seen.total, accepts_duplicates=accepts and _takes_unsure(seen))
    with ledger_transaction() as connection:
        planned, _ = operations.plan_requeue(
            connection,
            asked,
            operator=given["operator"],
            reason=given["reason"],
            as_of=seen.as_of,
            accepts_duplicates=accepts,
            canary=not given["all_at_once"],
            undo_s=0.0 if given["now"] else operations.UNDO_S,
        )
    if planned is None:
        raise CommandError("there is nothing left to requeue: somebody else was faster")
    _tell(planned, undo_s=0.0 if given["now"] else operations.UNDO_S)


def _asked(given: dict[str, Any]) -> "RequeueFilter":
    from shared.domain.ids import parse_send_id
    from shared.domain.requeue import REQUEUEABLE, USUAL, RequeueFilter
    from shared.domain.states import Channel, DeliveryStatus

    ids = _ids(given["delivery_ids"], given["ids_file"])
    narrowed = ("send_id", "tenant", "channel", "statuses", "signature", "since")
    empty = [name for name in narrowed if given[name] == ""]
    if empty:  # of a variable that was never set: without it far more would be taken
        raise click.UsageError(f"--{_OPTION.get(empty[0], empty[0])} is empty")
    if ids and any(given[name] for name in narrowed):
        raise click.UsageError("give delivery ids or options that describe them, not both")
    if not ids and not any(given[name] for name in narrowed):
        raise click.UsageError("say which: delivery ids, --send, --signature, … or --status dead_lettered for all")
    statuses = REQUEUEABLE if ids else USUAL
    if given["statuses"]:
        try:
            statuses = frozenset(DeliveryStatus(word.strip()) for word in given["statuses"].split(","))
        except ValueError:
            statuses = frozenset()
        if not statuses or statuses - REQUEUEABLE:
            raise click.UsageError("--status is a list of dead_lettered, failed and unsure, with commas between")
    if DeliveryStatus.UNSURE in statuses and not ids and not given["accept_duplicates"]:
        raise click.UsageError("unsure deliveries may have been sent: --accept-duplicates says that this is known")
    send_id = parse_send_id(given["send_id"]) if given["send_id"] else None
    channel = Channel(given["channel"]) if given["channel"] else None
    return RequeueFilter(
        ids=ids,
        send_id=send_id,
        tenant=given["tenant"],
        channel=channel,
        statuses=statuses,
        signature=given["signature"],
        since=given["since"],
    )


def _ids(words: Sequence[str], file: IO[str] | None) -> "tuple[tuple[UUID, int], ...]":
    from shared.domain.ids import IdError, parse_delivery_id

    found = dict.fromkeys([*words, *(line.strip() for line in file or () if line.strip())])
    try:
        return tuple(parse_delivery_id(text) for text in found)
    except IdError as error:
        raise click.UsageError(str(error)) from None


def _show(seen: "Preview") -> None:
    say(f"Requeue {cell(seen.asked.words())}:")
    rows = [(share.tenant, share.channel.value, share.status.value, share.count) for share in seen.taken]
    if rows:
        say(as_table(("tenant", "channel", "status", "deliveries"), rows))
    say(f"{seen.total:,} would be requeued.")
    for why, count in seen.left_out.items():
        say(f"{count:,} left out: {why.words}.")


def _takes_unsure(seen: "Preview") -> bool:
    return any(share.status.value == "unsure" for share in seen.taken)


def _confirm(total: int, *, accepts_duplicates: bool) -> None:
    if accepts_duplicates:
        say("Some of them may have been sent already, and are then received twice.")
    if total > _TYPED_ABOVE:
        typed = click.prompt(f"Type {total} to requeue them", default="", show_default=False)
        if typed.replace(",", "").strip() != str(total):
            raise CommandError("nothing was done")
    elif not click.confirm(f"Requeue {total:,} {'delivery' if total == 1 else 'deliveries'}?"):
        raise CommandError("nothing was done")


def _tell(planned: "Operation", *, undo_s: float) -> None:
    say(planned.id)
    if undo_s:
        say(f"Begins in {undo_s:.0f} s. Take it back: tidings operation undo {planned.id}", err=True)
    say(f"Follow it: tidings operation show {planned.id}", err=True)

"""`tidings requeue`, `tidings operation discard` and `restore`: what is done to failures, shown before it is done."""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
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

    from shared.domain.requeue import FailureFilter, OperationKind
    from shared.ledger.operations import Operation
    from shared.ledger.requeue import Preview

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


_WHICH = (
    click.argument("delivery_ids", metavar="[DELIVERY_ID]...", nargs=-1, type=DeliveryId()),
    click.option(
        "--ids", "ids_file", type=click.File("r"), help="A file with more delivery ids, one a line; - is stdin."
    ),
    click.option("--send", "send_id", metavar="ID", type=SendId(), help="Only deliveries of this send."),
    click.option("--tenant", metavar="NAME", help="Only this tenant's."),
    click.option("--channel", type=click.Choice(["email", "sms"]), help="Only on this channel."),
    click.option("--provider", metavar="NAME", help="Only those this provider was called for."),
    click.option("--status", "statuses", metavar="LIST", help="Of dead_lettered, failed, unsure. [the first two]"),
    click.option("--signature", metavar="SIG", help="Only those that failed for this cause."),
    click.option("--since", type=Since(), help="Only those settled since then: a time, or 30m, 24h, 7d."),
)
_HOW = (
    click.option("--dry-run", is_flag=True, help="Only show what it would take and what it would leave out."),
    click.option("--yes", is_flag=True, help="Do not ask."),
    click.option("--now", is_flag=True, help="Begin at once, without ten seconds to undo it."),
    as_operator,
)


def _with(command: Callable[..., None], *options: Callable[..., Any]) -> Callable[..., None]:
    for option in reversed(options):
        command = option(command)
    return command


def _requeue(**given: Any) -> None:
    """
    Send again what failed: deliveries by their ids, or all that the options describe.

    Shows what it would do and asks. It is done in the background, a few first: `tidings operation show ID`.
    """
    from shared.domain.requeue import OperationKind

    _plan(OperationKind.REQUEUE, given)


def _discard(**given: Any) -> None:
    """
    Give up what failed: deliveries by their ids, or all that the options describe.

    They are no longer shown among the failures and no requeue takes them. `tidings operation restore` takes it back.
    """
    from shared.domain.requeue import OperationKind

    _plan(OperationKind.DISCARD, given)


def _restore(**given: Any) -> None:
    """Show again what was discarded: deliveries by their ids, or all that the options describe."""
    from shared.domain.requeue import OperationKind

    _plan(OperationKind.RESTORE, given)


requeue = click.command("requeue")(
    _with(
        _requeue,
        *_WHICH,
        click.option("--reason", metavar="TEXT", help="Why; needed for more than 100. Kept in the audit."),
        click.option(
            "--accept-duplicates", is_flag=True, help="Take unsure ones too: they may have been sent already."
        ),
        click.option("--all-at-once", is_flag=True, help="Do not try a few first."),
        *_HOW,
    )
)
discard = click.command("discard")(
    _with(_discard, *_WHICH, click.option("--reason", metavar="TEXT", help="Why: needed. Kept in the audit."), *_HOW)
)
restore = click.command("restore")(
    _with(
        _restore,
        *_WHICH,
        click.option("--reason", metavar="TEXT", help="Why; needed for more than 100. Kept in the audit."),
        *_HOW,
    )
)


def _plan(kind: "OperationKind", given: dict[str, Any]) -> None:
    from shared.domain.requeue import REASON_ABOVE, OperationKind
    from shared.ledger import operations, requeue

    accepts = given.get("accept_duplicates", False)
    asked = _asked(given, may_name_unsure=accepts or kind is not OperationKind.REQUEUE)
    with ledger_transaction() as connection:
        seen = requeue.judge(connection, asked, kind=kind, accepts_duplicates=accepts)
    _show(seen)
    if given["dry_run"]:
        return
    if seen.total == 0:
        raise CommandError(f"there is nothing to {kind.value}")
    if kind.needs_reason(seen.total) and not given["reason"]:
        needed = "" if kind is OperationKind.DISCARD else f" for more than {REASON_ABOVE} deliveries"
        raise CommandError(f"say why: --reason is needed{needed}")
    if not given["yes"]:
        if accepts and _takes_unsure(seen):
            say("Some of them may have been sent already, and are then received twice.")
        confirm(kind, seen.total)
    undo_s = 0.0 if given["now"] else operations.UNDO_S
    with ledger_transaction() as connection:
        planned, _ = operations.plan(
            connection,
            kind,
            asked,
            operator=given["operator"],
            reason=given["reason"],
            as_of=seen.as_of,
            accepts_duplicates=accepts,
            canary=not given.get("all_at_once", False),
            undo_s=undo_s,
        )
    if planned is None:
        raise CommandError(f"there is nothing left to {kind.value}: somebody else was faster")
    tell(planned, undo_s=undo_s)


def _asked(given: dict[str, Any], *, may_name_unsure: bool) -> "FailureFilter":
    from shared.domain.ids import parse_send_id
    from shared.domain.requeue import REQUEUEABLE, USUAL, FailureFilter
    from shared.domain.states import Channel, DeliveryStatus

    ids = _ids(given["delivery_ids"], given["ids_file"])
    narrowed = ("send_id", "tenant", "channel", "provider", "statuses", "signature", "since")
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
    if DeliveryStatus.UNSURE in statuses and not ids and not may_name_unsure:
        raise click.UsageError("unsure deliveries may have been sent: --accept-duplicates says that this is known")
    send_id = parse_send_id(given["send_id"]) if given["send_id"] else None
    channel = Channel(given["channel"]) if given["channel"] else None
    return FailureFilter(
        ids=ids,
        send_id=send_id,
        tenant=given["tenant"],
        channel=channel,
        statuses=statuses,
        signature=given["signature"],
        since=given["since"],
        provider=given["provider"],
    )


def _ids(words: Sequence[str], file: IO[str] | None) -> "tuple[tuple[UUID, int], ...]":
    from shared.domain.ids import IdError, parse_delivery_id

    found = dict.fromkeys([*words, *(line.strip() for line in file or () if line.strip())])
    try:
        return tuple(parse_delivery_id(text) for text in found)
    except IdError as error:
        raise click.UsageError(str(error)) from None


def _show(seen: "Preview") -> None:
    say(f"{seen.kind.verb} {cell(seen.asked.words(seen.kind))}:")
    rows = [(share.tenant, share.channel.value, share.status.value, share.count) for share in seen.taken]
    if rows:
        say(as_table(("tenant", "channel", "status", "deliveries"), rows))
    say(f"{seen.total:,} would be {seen.kind.done}.")
    if seen.again and seen.before:
        say(
            f"{seen.again:,} of them were requeued before and failed again, the last by {seen.before.operator}"
            f" at {seen.before.at.astimezone(UTC):%Y-%m-%d %H:%M} UTC:"
            f" {seen.before.again:,} of its {seen.before.done:,}."
        )
    for why, count in seen.left_out.items():
        say(f"{count:,} left out: {why.words}.")


def _takes_unsure(seen: "Preview") -> bool:
    return any(share.status.value == "unsure" for share in seen.taken)


def confirm(kind: "OperationKind", total: int, *, nouns: tuple[str, str] = ("delivery", "deliveries")) -> None:
    """
    Ask whether that many are meant; of many the number has to be typed. `nouns`: one, several.

    Raises: CommandError where they are not.
    """
    from shared.domain.requeue import TYPED_ABOVE

    if total > TYPED_ABOVE:
        typed = click.prompt(f"Type {total} to {kind.value} them", default="", show_default=False)
        if typed.replace(",", "").strip() != str(total):
            raise CommandError("nothing was done")
    elif not click.confirm(f"{kind.verb} {total:,} {nouns[total != 1]}?"):
        raise CommandError("nothing was done")


def tell(planned: "Operation", *, undo_s: float) -> None:
    """Say which operation it is, and how to follow it or take it back."""
    say(planned.id)
    if undo_s:
        say(f"Begins in {undo_s:.0f} s. Take it back: tidings operation undo {planned.id}", err=True)
    say(f"Follow it: tidings operation show {planned.id}", err=True)

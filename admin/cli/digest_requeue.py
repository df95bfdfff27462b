"""`tidings digest requeue` and `discard`: dead letters told again or given up, shown before it is planned."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from admin.cli.digest_runs import found_channel
from admin.cli.fault import CommandError
from admin.cli.operator import as_operator
from admin.cli.requeue import confirm, tell
from admin.cli.screen import cell, say
from admin.cli.stores import ledger_transaction

if TYPE_CHECKING:
    from shared.domain.requeue import OperationKind
    from shared.ledger.digest_requeue import DeadLetterPreview

_DONE = {"requeue": "told again", "discard": "discarded"}
_WHICH = (
    click.argument("name", metavar="CHANNEL"),
    click.argument("ids", metavar="[ID]...", nargs=-1, type=click.IntRange(min=1, max=2**63 - 1)),
    click.option("--all", "all_of_them", is_flag=True, help="All dead letters of the channel."),
    click.option("--dry-run", is_flag=True, help="Only show what it would take and what it would leave out."),
    click.option("--yes", is_flag=True, help="Do not ask."),
    click.option("--now", is_flag=True, help="Begin at once, without ten seconds to undo it."),
    as_operator,
)


def _which(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_WHICH):
        command = option(command)
    return command


@click.command("requeue")
@click.option("--reason", metavar="TEXT", help="Why; needed for more than 100. Kept in the audit.")
@_which
def requeue(**given: Any) -> None:
    """
    Have dead letters of a channel told again, with all attempts: by the ids of `digest history`, or --all.

    Shows what it would do and asks. It is done in the background: `tidings operation show ID`.
    """
    from shared.domain.requeue import OperationKind

    _plan(OperationKind.REQUEUE, **given)


@click.command("discard")
@click.option("--reason", metavar="TEXT", help="Why: needed. Kept in the audit.")
@_which
def discard(**given: Any) -> None:
    """
    Give dead letters of a channel up: by the ids of `digest history`, or --all.

    They stay dead letters and warn nobody any more. `tidings digest requeue CHANNEL ID` still takes each by its id.
    """
    from shared.domain.requeue import OperationKind

    _plan(OperationKind.DISCARD, **given)


def _plan(kind: "OperationKind", *, name: str, ids: tuple[int, ...], all_of_them: bool, **given: Any) -> None:
    from shared.domain.digest_requeue import DeadLetterFilter
    from shared.domain.requeue import REASON_ABOVE, OperationKind
    from shared.ledger import clock, digest_requeue, operations

    if bool(ids) == all_of_them:
        raise click.UsageError("say which: ids of `tidings digest history --status dead_lettered`, or --all")
    asked = DeadLetterFilter(ids=ids, channel=name)
    with ledger_transaction() as connection:
        found_channel(connection, name)
        seen = digest_requeue.judge(connection, asked, kind=kind, as_of=clock.ledger_now(connection))
    _show(kind, seen)
    if given["dry_run"]:
        return
    if seen.total == 0:
        raise CommandError(f"none of them is a dead letter of this channel that can be {_DONE[kind.value]}")
    if kind.needs_reason(seen.total) and not given["reason"]:
        needed = "" if kind is OperationKind.DISCARD else f" for more than {REASON_ABOVE} notifications"
        raise CommandError(f"say why: --reason is needed{needed}")
    if not given["yes"]:
        confirm(kind, seen.total, nouns=("notification", "notifications"))
    undo_s = 0.0 if given["now"] else operations.UNDO_S
    with ledger_transaction() as connection:
        planned, _ = operations.plan(
            connection,
            kind,
            asked,
            operator=given["operator"],
            reason=given["reason"],
            as_of=seen.as_of,
            undo_s=undo_s,
        )
    if planned is None:
        raise CommandError(f"there is nothing left to {kind.value}: somebody else was faster")
    tell(planned, undo_s=undo_s)


def _show(kind: "OperationKind", seen: "DeadLetterPreview") -> None:
    say(f"{kind.verb} {cell(seen.asked.words())}:")
    for part in seen.taken:
        say(f"{part.count:,} of kind {cell(part.kind)}")
    when = " with the next dispatch" if kind.value == "requeue" else ""
    say(f"{seen.total:,} would be {_DONE[kind.value]}{when}.")
    for why, count in seen.left_out.items():
        say(f"{count:,} left out: {'no such dead letter of this channel' if why.value == 'missing' else why.words}.")

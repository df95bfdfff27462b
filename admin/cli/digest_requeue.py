"""`tidings digest requeue`: dead letters told again, by an operation whose set is shown before it is planned."""

from typing import TYPE_CHECKING

import click

from admin.cli.digest_runs import found_channel
from admin.cli.fault import CommandError
from admin.cli.operator import as_operator
from admin.cli.requeue import confirm, tell
from admin.cli.screen import cell, say
from admin.cli.stores import ledger_transaction

if TYPE_CHECKING:
    from shared.ledger.digest_requeue import DeadLetterPreview


@click.command("requeue")
@click.argument("name", metavar="CHANNEL")
@click.argument("ids", metavar="[ID]...", nargs=-1, type=click.IntRange(min=1, max=2**63 - 1))
@click.option("--all", "all_of_them", is_flag=True, help="All dead letters of the channel.")
@click.option("--reason", metavar="TEXT", help="Why; needed for more than 100. Kept in the audit.")
@click.option("--dry-run", is_flag=True, help="Only show what it would take and what it would leave out.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--now", is_flag=True, help="Begin at once, without ten seconds to undo it.")
@as_operator
def requeue(
    name: str,
    ids: tuple[int, ...],
    all_of_them: bool,  # noqa: FBT001  # as click gives them
    reason: str | None,
    dry_run: bool,  # noqa: FBT001
    yes: bool,  # noqa: FBT001
    now: bool,  # noqa: FBT001
    operator: str,
) -> None:
    """
    Have dead letters of a channel told again, with all attempts: by the ids of `digest history`, or --all.

    Shows what it would do and asks. It is done in the background: `tidings operation show ID`.
    """
    from shared.domain.digest_requeue import DeadLetterFilter
    from shared.domain.requeue import REASON_ABOVE, OperationKind
    from shared.ledger import digest_requeue, operations
    from shared.ledger.clock import ledger_now

    if bool(ids) == all_of_them:
        raise click.UsageError("say which: ids of `tidings digest history --status dead_lettered`, or --all")
    kind = OperationKind.REQUEUE
    asked = DeadLetterFilter(ids=ids, channel=name)
    with ledger_transaction() as connection:
        found_channel(connection, name)
        seen = digest_requeue.judge(connection, asked, as_of=ledger_now(connection))
    _show(seen)
    if dry_run:
        return
    if seen.total == 0:
        raise CommandError("none of them is a dead letter of this channel that can be told again")
    if kind.needs_reason(seen.total) and not reason:
        raise CommandError(f"say why: --reason is needed for more than {REASON_ABOVE} notifications")
    if not yes:
        confirm(kind, seen.total, nouns=("notification", "notifications"))
    undo_s = 0.0 if now else operations.UNDO_S
    with ledger_transaction() as connection:
        planned, _ = operations.plan(
            connection, kind, asked, operator=operator, reason=reason, as_of=seen.as_of, undo_s=undo_s
        )
    if planned is None:
        raise CommandError("there is nothing left to requeue: somebody else was faster")
    tell(planned, undo_s=undo_s)


def _show(seen: "DeadLetterPreview") -> None:
    say(f"Requeue {cell(seen.asked.words())}:")
    for part in seen.taken:
        say(f"{part.count:,} of kind {cell(part.kind)}")
    say(f"{seen.total:,} would be told again with the next dispatch.")
    for why, count in seen.left_out.items():
        say(f"{count:,} left out: {'no such dead letter of this channel' if why.value == 'missing' else why.words}.")

"""`tidings operation …` and `tidings audit`: what people did to many deliveries at once, and who did what."""

from collections.abc import Mapping
from typing import TYPE_CHECKING
from uuid import UUID

import click

from admin.cli.fault import CommandError
from admin.cli.operator import as_operator
from admin.cli.requeue import discard, restore
from admin.cli.screen import cell, say
from admin.cli.stores import ledger_transaction
from admin.cli.table import as_table

if TYPE_CHECKING:
    from shared.ledger.operation_results import Outcome
    from shared.ledger.operations import Operation

_limit = click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Most lines.")
_id = click.argument("operation_id", metavar="ID", type=click.UUID)


@click.group()
def operation() -> None:
    """Requeues, discards and restores in the background."""


operation.add_command(discard)
operation.add_command(restore)


@operation.command("list")
@_limit
def list_operations(limit: int) -> None:
    """List operations, newest first."""
    from shared.ledger import operations

    with ledger_transaction() as connection:
        found = operations.newest(connection, limit=limit)
    head = ("id", "kind", "status", "operator", "created", "total", "done", "skipped", "what")
    rows = [
        (one.id, one.kind.value, one.status, one.operator, f"{one.created_at:%Y-%m-%d %H:%M}", one.total, one.done,
         one.skipped, one.filter["words"])
        for one in found
    ]  # fmt: skip
    say(as_table(head, rows))


@operation.command("show")
@_id
def show_operation(operation_id: UUID) -> None:
    """Show how far an operation is and what became of what it took."""
    from shared.ledger import operation_results, operations

    with ledger_transaction() as connection:
        found = operations.find(connection, operation_id)
        if found is None:
            raise CommandError(f"there is no operation {operation_id}; see `tidings operation list`")
        skips = {why.words: count for why, count in operation_results.skips(connection, operation_id).items()}
        outcome = operation_results.outcome(connection, operation_id)
    say("\n".join(_lines(found, skips, outcome)))


@operation.command("stop")
@_id
@click.option("--reason", metavar="TEXT", default="", help="Why. Kept in the audit.")
@as_operator
def stop_operation(operation_id: UUID, reason: str, operator: str) -> None:
    """Stop an operation: what it has not done stays as it was."""
    from shared.ledger import operations

    with ledger_transaction() as connection:
        why = f"stopped by {operator}: {reason}" if reason else f"stopped by {operator}"
        if not operations.stop(connection, operation_id, operator=operator, why=why):
            raise CommandError(_not_open(operations.find(connection, operation_id), operation_id))
        found = operations.find(connection, operation_id)
    if found is not None:
        say(f"Stopped: {found.done:,} were {found.kind.done}, {found.left:,} stay as they were.")


@operation.command("undo")
@_id
@as_operator
def undo_operation(operation_id: UUID, operator: str) -> None:
    """Take an operation back before it begins."""
    from shared.ledger import operations

    with ledger_transaction() as connection:
        if not operations.undo(connection, operation_id, operator=operator):
            raise CommandError(_not_open(operations.find(connection, operation_id), operation_id))
    say("Undone: nothing was done.")


@click.command()
@_limit
def audit(limit: int) -> None:
    """List what operators did, newest first: when, who, what, to how many, and why."""
    from shared.ledger import audit

    with ledger_transaction() as connection:
        found = audit.newest(connection, limit=limit)
    head = ("when (UTC)", "operator", "action", "target", "count", "result", "reason", "account")
    rows = [
        (
            f"{one.at:%Y-%m-%d %H:%M:%S}",
            one.operator,
            one.action,
            one.target,
            one.count,
            one.result,
            one.reason,
            one.shown_account,
        )
        for one in found
    ]
    say(as_table(head, rows))


def _lines(found: "Operation", skips: Mapping[str, int], outcome: "Outcome") -> list[str]:
    done = f"{found.done:,} of {found.total:,}"
    lines = [
        f"{found.kind.verb} {cell(found.filter['words'])}",
        f"  {found.status}: {done} {found.kind.done}, {found.skipped:,} skipped, {found.left:,} left",
        f"  by {cell(found.operator)} at {found.created_at:%Y-%m-%d %H:%M:%S} UTC"
        + (f", because: {cell(found.reason)}" if found.reason else ""),
    ]
    if found.accepts_duplicates:
        lines.append("  possible duplicates were accepted")
    if found.why:
        lines.append(f"  {cell(found.why)}")
    lines += [f"  skipped {count:,}: {why}" for why, count in skips.items()]
    when = f"at {outcome.noted_at:%Y-%m-%d %H:%M} UTC" if outcome.noted_at else "now"
    lines += [f"  {when} {state.replace('_', '-')}: {count:,}" for state, count in outcome.counts.items()]
    return lines


def _not_open(found: "Operation | None", operation_id: UUID) -> str:
    if found is None:
        return f"there is no operation {operation_id}; see `tidings operation list`"
    if found.status == "running":
        return "it has begun; `tidings operation stop` leaves the rest as it was"
    return f"it is over: {found.status}"

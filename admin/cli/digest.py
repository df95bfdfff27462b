"""`tidings digest …`: telling it now, what was told, and telling it again."""

from typing import TYPE_CHECKING, Any

import click

from admin.cli.digest_channels import channel
from admin.cli.digest_requeue import discard, requeue
from admin.cli.digest_runs import run_by_worker
from admin.cli.fault import CommandError
from admin.cli.moments import when
from admin.cli.operator import as_operator
from admin.cli.screen import say
from admin.cli.stores import ledger_transaction
from admin.cli.table import as_table

if TYPE_CHECKING:
    from shared.ledger.notifications import Told

_STATUSES = ("pending", "retrying", "sent", "suppressed", "dead_lettered")


@click.group()
def digest() -> None:
    """Digests: channels, what was told on them, and telling it now."""


digest.add_command(channel)
digest.add_command(requeue)
digest.add_command(discard)


@digest.command("run")
@click.option("--wait", "wait_s", type=click.IntRange(1, 600), default=120, show_default=True, help="Seconds.")
@as_operator
def run(wait_s: int, operator: str) -> None:
    """Have a worker tell every channel what is due, now, as it does every few minutes."""
    result = run_by_worker(None, operator=operator, wait_s=wait_s)
    if "skipped" in result:
        raise CommandError(f"nothing was done: {result['skipped']}")
    said = {
        "found": "newly found",
        "told": "told",
        "sent": "messages taken",
        "failed": "not taken",
        "frozen": "unknown",
    }
    parts = [f"{result[word]:,} {words}" for word, words in said.items() if result.get(word)]
    say(", ".join(parts) if parts else "Nothing is due.")


@digest.command("history")
@click.option("--channel", "name", metavar="NAME", help="Only this channel's.")
@click.option("--kind", help="Only of this kind.")
@click.option("--status", type=click.Choice(_STATUSES), help="Only those in this state.")
@click.option("--messages", is_flag=True, help="Messages instead of what was in them.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Most lines.")
def history(name: str | None, kind: str | None, status: str | None, messages: bool, limit: int) -> None:  # noqa: FBT001  # as above
    """List what was told or is to be, newest first."""
    from shared.domain.digests import NotificationStatus
    from shared.ledger import notifications

    with ledger_transaction() as connection:
        if messages:
            sent = notifications.messages(connection, channel=name, limit=limit)
        else:
            wanted = NotificationStatus(status) if status else None
            told = notifications.history(connection, channel=name, kind=kind, status=wanted, limit=limit)
    if messages:
        head: tuple[str, ...] = ("message", "channel", "state", "items", "left", "begun", "ended", "remark")
        rows: list[tuple[Any, ...]] = [
            (one.id, one.channel, one.status, one.items, one.left, when(one.created_at), when(one.ended_at),
             one.detail or one.reference)
            for one in sent
        ]  # fmt: skip
    else:
        head = (
            "id",
            "channel",
            "kind",
            "subject",
            "severity",
            "state",
            "attempts",
            "found",
            "told",
            "next",
            "last error",
        )
        rows = [
            (one.id, one.channel, one.kind, one.subject, one.severity, _state(one), one.attempt_count,
             when(one.created_at), when(one.sent_at), when(one.next_attempt_at), one.last_error)
            for one in told
        ]  # fmt: skip
    say(as_table(head, rows))


def _state(one: "Told") -> str:
    return one.status.replace("_", "-") + (", discarded" if one.discarded_at else "")

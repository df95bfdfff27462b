"""`tidings books`: what was accepted against where it is, straight from the ledger; any difference by id."""

from collections import defaultdict
from dataclasses import fields
from typing import TYPE_CHECKING

import click

from admin.cli.books import COLUMNS
from admin.cli.fault import CommandError
from admin.cli.ids import SendId
from admin.cli.screen import say
from admin.cli.stores import ledger_transaction, read_settings
from admin.cli.table import as_table

if TYPE_CHECKING:
    from uuid import UUID

    from shared.domain.books import Owed
    from shared.ledger.books import BookLine
    from shared.ledger.db import Connection

#: Sends and deliveries named at most: enough to find the cause.
_NAMED = 50
#: By the API's and the ledger's name of a place.
WORDS = {
    "ready": "ready to go",
    "in_hand": "in a worker's hands",
    "backoff": "waiting for the next try",
    "gate": "provider told us to wait",
    "circuit": "provider's circuit is open",
    "isolated": "provider is not set up right",
    "hold": "provider held by an operator",
    "cap": "every call the cap allows is in flight",
    "paused": "send is paused",
    "scheduled": "send is scheduled",
    "proving": "outcome is being proved",
}


@click.command("books")
@click.option("--send", "send_id", metavar="ID", type=SendId(), help="One send, checked row by row.")
def books(send_id: str | None) -> None:
    """
    Show that accepted = sent + failed + dead-lettered + discarded + suppressed + cancelled + expired + unsure + owed.

    What is owed is split by where it is and what it waits for. Ends with 1, naming sends and deliveries, when
    anything is unaccounted for.
    """
    from shared.domain.ids import parse_send_id
    from shared.ledger import books as ledger_books
    from shared.ledger import pauses

    chosen = parse_send_id(send_id) if send_id else None
    with ledger_transaction() as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        found = ledger_books.lines(connection, send_id=chosen)
        if chosen and not found:
            raise CommandError(f"there is no send {send_id}")
        differences = _differences(connection, chosen)
        paused = pauses.paused(connection).values()
    say(_table(found))
    say()
    say(_where(found))
    for pause in paused:
        say(f"Queue {pause.queue} is paused by {pause.operator} ({pause.reason}): what is ready on it waits for that.")
    if differences or any(line.books.unaccounted for line in found):
        raise CommandError("UNACCOUNTED. This is a fault of Tidings; please report it.\n" + "\n".join(differences))


def _differences(connection: "Connection", chosen: "UUID | None") -> list[str]:
    from shared.ledger import books as ledger_books

    said, sends = [], [chosen] if chosen else []
    for each in ledger_books.sends_out_of_balance(connection, send_id=chosen, limit=_NAMED):
        said.append(f"{each.send_id} {each.channel.value}: accepted {each.accepted:,}, counted {each.counted:,}")
        if each.send_id not in sends:
            sends.append(each.send_id)
    for send_id in sends:
        rows = ledger_books.deliveries_out_of_balance(connection, send_id, limit=_NAMED)
        said.extend(f"{row.id}: {row.why}" for row in rows)
    return said


def _table(found: "list[BookLine]") -> str:
    sums: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0] * (len(COLUMNS) + 2))
    for line in found:
        counts = [line.books.accepted, *(getattr(line.books, name) for name in COLUMNS), line.books.unaccounted]
        known = sums[line.channel.value, line.mode.value]
        for index, count in enumerate(counts):
            known[index] += count
    head = ("channel", "key", "accepted", *(name.replace("_", " ") for name in COLUMNS), "unaccounted")
    return as_table(head, [(*named, *counts) for named, counts in sums.items()])


def _where(found: "list[BookLine]") -> str:
    """What is owed by place and reason; parts that are 0 everywhere are left out."""
    rows = []
    for channel, mode, owed in _owed(found):
        for field in fields(owed):
            count = getattr(owed, field.name)
            if field.name in WORDS and count:
                until = owed.backoff_until if field.name == "backoff" else None
                rows.append(
                    (channel, mode, WORDS[field.name], count, f"{until.astimezone():%H:%M:%S %Z}" if until else None)
                )
    return as_table(("channel", "key", "owed", "deliveries", "first at"), rows) if rows else "Nothing is owed."


def _owed(found: "list[BookLine]") -> "list[tuple[str, str, Owed]]":
    from shared.coordination.redis import RedisLink
    from shared.recovery.waits import Waits

    settings = read_settings(or_local=True)
    link = RedisLink(settings.redis_url.get_secret_value())
    waits = Waits(link, settings)
    try:
        return [
            (
                line.channel.value,
                line.mode.value,
                line.books.where(line.status, waits.shown(line.channel, line.mode) if line.books.owed else None),
            )
            for line in found
        ]
    finally:
        link.close()

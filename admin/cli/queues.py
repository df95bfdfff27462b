"""`tidings queue …`: what waits on each queue, and an operator's pause of one."""

from typing import TYPE_CHECKING

import click

from admin.cli.fault import CommandError
from admin.cli.operator import as_operator
from admin.cli.screen import say
from admin.cli.stores import ledger_transaction, read_settings
from admin.cli.table import as_table

if TYPE_CHECKING:
    from shared.coordination.queue_depth import QueueDepth

#: Seconds that Redis may take for a person.
_PATIENCE_S = 3.0
_name = click.argument("name", metavar="NAME")


@click.group()
def queue() -> None:
    """What waits on each queue; pause and resume one."""


@queue.command("list")
def list_queues() -> None:
    """Show the messages on each queue, and who paused which."""
    from shared.jobs import QueueName
    from shared.ledger import pauses

    names = [name.value for name in QueueName]
    depths = _depths(names)
    with ledger_transaction() as connection:
        paused = pauses.paused(connection)
    rows = []
    for name in names:
        depth, pause = depths.get(name), paused.get(name)
        counts = (depth.ready, depth.unacked, depth.dead) if depth else ("?", "?", "?")
        said = f"by {pause.operator} since {pause.since:%Y-%m-%d %H:%M:%S} UTC: {pause.reason}" if pause else None
        rows.append((name, *counts, said))
    say(as_table(("queue", "ready", "in flight", "set aside", "paused"), rows))
    if not depths:
        say("Redis (REDIS_URL) does not answer; the messages are kept there.", err=True)


@queue.command("pause")
@_name
@click.option("--reason", required=True, metavar="TEXT", help="Why; shown to everybody who looks, kept in the audit.")
@as_operator
def pause_queue(name: str, reason: str, operator: str) -> None:
    """Let workers leave a queue alone until it is resumed; what waits on it is neither lost nor stuck."""
    from shared.ledger import pauses

    _check(name)
    with ledger_transaction() as connection:
        done = pauses.pause(connection, name, operator=operator, reason=reason)
    say(f"{name}: paused; workers stop within seconds" if done else f"{name}: was paused already")


@queue.command("resume")
@_name
@as_operator
def resume_queue(name: str, operator: str) -> None:
    """End a pause: what waits goes at once."""
    from shared.ledger import pauses

    _check(name)
    with ledger_transaction() as connection:
        done = pauses.resume(connection, name, operator=operator)
    say(f"{name}: resumed" if done else f"{name}: was not paused")


def _check(name: str) -> None:
    from shared.jobs import PAUSABLE, QueueName

    if name == QueueName.OPS:
        raise CommandError("`ops` cannot be paused: recovery, timers and operations travel on it")
    if name not in PAUSABLE:
        raise CommandError(f"no queue {name}; there are {', '.join(sorted(PAUSABLE))}")


def _depths(names: list[str]) -> "dict[str, QueueDepth]":
    """By queue; empty where Redis does not answer."""
    from shared.coordination.queue_depth import Queues
    from shared.coordination.redis import RedisLink, RedisUnavailable

    settings = read_settings(or_local=True)
    link = RedisLink(settings.redis_url.get_secret_value(), timeout_s=_PATIENCE_S)
    try:
        return {
            depth.queue: depth for depth in Queues(link, namespace=f"{settings.redis_namespace}:broker").depths(names)
        }
    except RedisUnavailable:
        return {}
    finally:
        link.close()

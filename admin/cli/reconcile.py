"""`tidings reconcile`: a pass of the reconciler by hand, in this process; and what the last ones did."""

from typing import TYPE_CHECKING, Any

import click

from admin.cli.fault import CommandError
from admin.cli.screen import say
from admin.cli.stores import read_settings
from admin.cli.table import as_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.ledger.recovery import Pass

#: Connections: the lock of a pass without Redis, its finder, its changes, its record.
_CONNECTIONS = 4
_WORDS = ("found", "retried", "requeued", "given_up")


@click.command()
@click.option("--last", type=click.IntRange(1, 1000), metavar="N", help="Run nothing; show the last N passes.")
def reconcile(last: int | None) -> None:
    """
    Find what is stuck and set it going again, now, as the workers do every minute.

    Works without Redis and without any worker; messages it cannot enqueue are enqueued by the next pass.
    """
    import socket

    from psycopg import Error

    from shared.accounts import first_looks_s
    from shared.coordination.redis import RedisLink
    from shared.jobs import Jobs, make_broker
    from shared.ledger import recovery
    from shared.ledger.db import Ledger
    from shared.recovery.reconciler import Reconciler

    settings = read_settings(or_local=True)
    ledger = Ledger(settings.database_url.get_secret_value(), size=_CONNECTIONS, name="tidings reconcile")
    link = RedisLink(settings.redis_url.get_secret_value())
    broker = make_broker(
        settings.redis_url.get_secret_value(),
        namespace=settings.redis_namespace,
        heartbeat_timeout_ms=settings.worker_heartbeat_timeout_ms,
    )
    ledger.open()
    try:
        if last:
            with ledger.autocommit() as connection:
                say(_passes(recovery.passes(connection, limit=last)))
            return
        done = Reconciler(
            ledger,
            link,
            Jobs(broker),
            settings,
            worker=f"by hand@{socket.gethostname()}",
            first_look_s=first_looks_s(settings),
        ).run_pass()
        if done is None:
            raise CommandError("a pass is running at this moment; `tidings reconcile --last 1` shows it")
        say(_counts(done.as_json()) if done.as_json() else "Nothing is stuck.")
        if done.left:
            raise CommandError(done.left)
    except Error as error:
        raise CommandError(f"the ledger does not answer: {type(error).__name__}") from None
    finally:
        broker.close()
        link.close()
        ledger.close()


def _counts(counts: "Mapping[str, Any]") -> str:
    rows = [(kind, *(each.get(word, 0) for word in _WORDS)) for kind, each in counts.items()]
    return as_table(("kind", *(word.replace("_", " ") for word in _WORDS)), rows)


def _passes(passes: "list[Pass]") -> str:
    rows = []
    for each in passes:
        took = f"{(each.ended_at - each.started_at).total_seconds():.1f} s" if each.ended_at else "no end"
        did = "; ".join(
            f"{kind}: " + ", ".join(f"{n} {word.replace('_', ' ')}" for word, n in words.items() if n)
            for kind, words in each.counts.items()
        )
        begun = f"{each.started_at.astimezone():%Y-%m-%d %H:%M:%S}"
        rows.append(
            (begun, took, each.worker, "a tick" if each.by_tick else each.fence, did or "nothing stuck", each.error)
        )
    return as_table(("begun", "took", "by", "fence", "did", "remark"), rows)

"""A run of dispatch, or a test of a channel, that a person asks for: a worker does it, and its result is waited for."""

import time
from typing import TYPE_CHECKING, Any

from admin.cli.fault import CommandError
from admin.cli.stores import ledger_transaction, read_settings

if TYPE_CHECKING:
    from uuid import UUID

    from shared.ledger.db import Connection
    from shared.ledger.digest_channels import DigestChannel
    from shared.ledger.digest_runs import DigestRun

#: Seconds between two looks at a run.
_LOOK_S = 0.2


def found_channel(connection: "Connection", name: str) -> "DigestChannel":
    """
    The channel of a name.

    Raises: CommandError.
    """
    from shared.ledger import digest_channels

    found = digest_channels.find(connection, name)
    if found is None:
        raise CommandError(f"there is no digest channel named {name}; see `tidings digest channel list`")
    return found


def run_by_worker(name: str | None, *, operator: str, wait_s: float) -> dict[str, Any]:
    """
    Have a worker dispatch now, or test the channel of that name; its result.

    Raises: CommandError where no worker is there in time.
    """
    import redis

    from shared.jobs import Jobs, make_broker
    from shared.ledger import digest_runs, digest_setup

    settings = read_settings(or_local=True)
    with ledger_transaction() as connection:
        channel = None if name is None else found_channel(connection, name)
        run_id = digest_setup.ask_run(connection, operator=operator, channel=channel)
    broker = make_broker(
        settings.redis_url.get_secret_value(),
        namespace=settings.redis_namespace,
        heartbeat_timeout_ms=settings.worker_heartbeat_timeout_ms,
    )
    try:
        Jobs(broker).digest_run(run_id)
    except redis.RedisError:
        with ledger_transaction() as connection:
            given_up = digest_runs.give_up(connection, run_id)
        if given_up:
            raise CommandError("Redis (REDIS_URL) does not answer; a worker is told through it") from None
    finally:
        broker.close()
    return _wait(run_id, wait_s)


def _wait(run_id: "UUID", wait_s: float) -> dict[str, Any]:
    from shared.ledger import digest_runs

    until = time.monotonic() + wait_s
    found: DigestRun | None = None
    while time.monotonic() < until:
        with ledger_transaction() as connection:
            found = digest_runs.find(connection, run_id)
        if found is not None and found.result is not None:
            return found.result
        time.sleep(_LOOK_S)
    if found is not None and found.started_at is not None:
        raise CommandError(f"a worker has been at it for {wait_s:g} s; see `tidings digest history --messages`")
    raise CommandError(f"no worker took it up within {wait_s:g} s: start `worker_ops`; see `tidings queue list`")

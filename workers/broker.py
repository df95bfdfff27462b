"""From settings to a broker with its middleware, in one screen."""

from importlib.metadata import version

import dramatiq
from dramatiq.middleware import CurrentMessage, Retries

from shared.jobs import Broker, CountsMessages, QueueName, make_broker
from shared.settings import Settings
from workers.middleware.drain import Drain
from workers.middleware.failed_jobs import FailedJobs
from workers.middleware.fresh_look import FreshLook
from workers.middleware.heartbeat import Heartbeats
from workers.middleware.pauses import Pauses
from workers.middleware.runtime import Runtime
from workers.middleware.stalled import Stalled


def make_worker(settings: Settings, *, process: str) -> tuple[Broker, Runtime]:
    """
    The broker of a worker process.

    Retries stays in the list with zero retries: it is what keeps a failed message from being acknowledged
    as done. Everything else of dramatiq's default list is left out: time limits and shutdown exceptions
    strike in the middle of a provider call, delayed retries live in one worker's memory (ADR-0002).
    """
    runtime = Runtime(settings, process=process)
    failed_jobs = FailedJobs(runtime)
    # `before` hooks run in this order, `after` hooks in reverse: stores open first and close last.
    middleware: list[dramatiq.Middleware] = [
        runtime,
        Pauses(runtime),
        FreshLook(runtime),
        failed_jobs,
        Stalled(runtime, failed_jobs),
        CountsMessages(runtime.minutes.count),
        Heartbeats(runtime, version=version("tidings")),
        Drain(runtime),  # waits for work under way: the heartbeat has said so before
        CurrentMessage(),
        Retries(max_retries=0),
    ]
    broker = make_broker(
        settings.redis_url.get_secret_value(),
        namespace=settings.redis_namespace,
        heartbeat_timeout_ms=settings.worker_heartbeat_timeout_ms,
        middleware=middleware,
    )
    for name in QueueName:
        broker.declare_queue(name.value)
    return broker, runtime

"""What a request may use: settings, the ledger's pools, the queues; and Flask-SQLAlchemy for the pages' plain lists."""

import threading
from dataclasses import dataclass

from flask import Flask, current_app
from flask_sqlalchemy import SQLAlchemy

from shared.coordination.doorbell import Doorbell
from shared.coordination.minute_ring import MinuteRings
from shared.coordination.redis import RedisLink
from shared.jobs import CountsMessages, Jobs, make_broker
from shared.ledger.db import Ledger, bounded_connection, sqlalchemy_url
from shared.ledger.models import Base
from shared.ledger.resting import RestingLedger
from shared.settings import Settings

#: Reads of the admin pages; the tenant API uses named statements over `Services.ledger`.
db = SQLAlchemy(metadata=Base.metadata)

_NAME = "tidings"
#: Seconds a request waits for a connection before it is told to come again: its thread is needed for others.
_PATIENCE_S = 4.0
#: Seconds a page waits for a connection to read with, before it shows what it knows.
_READ_PATIENCE_S = 1.5
#: Large submissions that one process stores at the same time. Each holds a connection of the pool for up to some 15 s,
#: and up to 130 MB; more at once would be hardly faster, and leave small ones without a connection.
_LARGE_AT_ONCE = 2
#: Milliseconds of a statement of the pages. A slower one is a fault of the page, and must not hold its thread.
READ_TIMEOUT_MS = 2_000


@dataclass(frozen=True)
class Services:
    """
    One per process. Connections are made when they are first needed.

    `reading` is a small pool for what people look at: nobody waits long for it, and it takes none from the API. While
    the ledger is known to be away it is not asked. `large_submissions` gives large submissions their turns.
    """

    settings: Settings
    ledger: Ledger
    reading: RestingLedger
    jobs: Jobs
    link: RedisLink
    doorbell: Doorbell
    minutes: MinuteRings
    large_submissions: threading.Semaphore

    def close(self) -> None:
        """Let go of every connection."""
        self.ledger.close()
        self.reading.close()
        self.minutes.close()
        self.doorbell.close()
        self.jobs.broker.close()
        self.link.close()


def install(app: Flask, settings: Settings) -> Services:
    """Build the services of this process and attach them to the app."""
    url = settings.database_url.get_secret_value()
    link = RedisLink(settings.redis_url.get_secret_value())
    minutes = MinuteRings(link, points=settings.queue_metrics_max_data_points, namespace=settings.redis_namespace)
    broker = make_broker(
        settings.redis_url.get_secret_value(),
        namespace=settings.redis_namespace,
        heartbeat_timeout_ms=settings.worker_heartbeat_timeout_ms,
        middleware=[CountsMessages(minutes.count)],
    )
    services = Services(
        settings=settings,
        ledger=Ledger(url, size=settings.db_pool_size, name="tidings-web", patience_s=_PATIENCE_S),
        reading=RestingLedger(
            url,
            size=4,
            name="tidings-reading",
            patience_s=_READ_PATIENCE_S,
            statement_s=READ_TIMEOUT_MS / 1000 + 1.0,
            statement_timeout_ms=READ_TIMEOUT_MS,
        ),
        jobs=Jobs(broker),
        link=link,
        doorbell=Doorbell(link, namespace=settings.redis_namespace),
        minutes=minutes,
        large_submissions=threading.BoundedSemaphore(max(1, min(_LARGE_AT_ONCE, settings.db_pool_size - 1))),
    )
    services.ledger.open()
    services.reading.open()
    app.extensions[_NAME] = services
    app.config["SQLALCHEMY_DATABASE_URI"] = sqlalchemy_url(url)
    app.config["SQLALCHEMY_ENGINE_OPTIONS"] = {
        "pool_size": 2,
        "max_overflow": 0,
        "pool_timeout": 5,
        "pool_pre_ping": True,
        "creator": lambda: bounded_connection(url, name="tidings-pages", statement_timeout_ms=READ_TIMEOUT_MS),
    }
    db.init_app(app)
    return services


def installed(app: Flask) -> Services:
    """The services of an app."""
    found: Services = app.extensions[_NAME]
    return found


def services() -> Services:
    """The services of the running request's app."""
    return installed(current_app)

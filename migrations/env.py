"""
Alembic's entry: one migration run at a time (advisory lock), bounded waits, transaction per migration.

`lock_timeout`: a migration that cannot have its lock soon gives up instead of queueing everybody behind it.
"""

from alembic import context
from sqlalchemy import NullPool, create_engine, text

from shared.ledger.db import sqlalchemy_url
from shared.ledger.models import Base

#: Any fixed number: every migration run of this product takes the same advisory lock.
_LOCK = 0x7469_6469_6E67_73
_LOCK_TIMEOUT_MS = 5_000
_STATEMENT_TIMEOUT_MS = 300_000


def _database_url() -> str:
    given = context.config.attributes.get("database_url")
    if given is None:
        from shared.settings import load

        given = load().database_url.get_secret_value()
    return str(given)


def _run() -> None:
    engine = create_engine(sqlalchemy_url(_database_url()), isolation_level="AUTOCOMMIT", poolclass=NullPool)
    with engine.connect() as guard:
        guard.execute(text("SELECT pg_advisory_lock(:lock)"), {"lock": _LOCK})
        try:
            with engine.connect().execution_options(isolation_level="READ COMMITTED") as connection:
                connection.execute(text(f"SET lock_timeout = {_LOCK_TIMEOUT_MS}"))
                connection.execute(text(f"SET statement_timeout = {_STATEMENT_TIMEOUT_MS}"))
                connection.commit()
                context.configure(connection=connection, target_metadata=Base.metadata, transaction_per_migration=True)
                with context.begin_transaction():
                    context.run_migrations()
                connection.commit()
        finally:
            guard.execute(text("SELECT pg_advisory_unlock(:lock)"), {"lock": _LOCK})


_run()

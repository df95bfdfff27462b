"""Bring a database to the newest schema. Safe to run by several at once and again and again."""

from pathlib import Path

from alembic import command
from alembic.config import Config

_MIGRATIONS = Path(__file__).resolve().parents[2] / "migrations"


def alembic_config(database_url: str) -> Config:
    """An Alembic configuration without a file; the URL travels as an attribute, not through an .ini."""
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    config.attributes["database_url"] = database_url
    return config


def upgrade(database_url: str) -> None:
    """
    Migrate to head under an advisory lock.

    Raises: sqlalchemy.exc.OperationalError when the database is away or a lock is not had in time.
    """
    command.upgrade(alembic_config(database_url), "head")

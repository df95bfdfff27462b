"""The pages over real stores, called through the application's WSGI door."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from flask import Flask

from admin.app import create_app
from admin.extensions import db, installed
from shared.settings import load
from tests.support.browser import SECRET_KEY, Browser

MakeApp = Callable[..., Flask]


@pytest.fixture
def make_app(database_url: str) -> Iterator[MakeApp]:
    """Make applications over this test's database; Redis is away unless `redis_url` is given."""
    made: list[Flask] = []

    def make_app(**settings: Any) -> Flask:
        usual = {"redis_url": "redis://127.0.0.1:1/0", "secret_key": SECRET_KEY, "environment": "Test bench"}
        app = create_app(load(**{"database_url": database_url, **usual, **settings}))
        made.append(app)
        return app

    yield make_app
    for app in made:
        with app.app_context():
            db.engine.dispose()
        installed(app).close()


@pytest.fixture
def app(make_app: MakeApp) -> Flask:
    return make_app()


@pytest.fixture
def browser(app: Flask) -> Browser:
    """A browser of somebody who may do everything."""
    return Browser(app)

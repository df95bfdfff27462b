import socket
import threading
import time
from collections.abc import Iterator

import pytest
from flask import Flask
from flask.testing import FlaskClient

from admin.monitoring import health
from shared.settings import load


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Accepts connections in the kernel's queue and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def _client(database_url: str, redis_url: str) -> FlaskClient:
    app = Flask(__name__)
    app.register_blueprint(health.blueprint(load(database_url=database_url, redis_url=redis_url)))
    return app.test_client()


def _closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def test_a_process_whose_stores_answer_is_ready(postgres_url: str, redis_url: str) -> None:
    answer = _client(postgres_url, redis_url).get("/readyz")

    assert answer.status_code == 200
    assert answer.json == {"status": "ready", "stores": {"postgres": "ok", "redis": "ok"}}
    assert answer.headers["Cache-Control"] == "no-store"


def test_without_redis_it_is_not_ready_and_names_redis(postgres_url: str) -> None:
    answer = _client(postgres_url, f"redis://127.0.0.1:{_closed_port()}/0").get("/readyz")

    assert answer.status_code == 503
    assert answer.json == {"status": "not ready", "stores": {"postgres": "ok", "redis": "away"}}


def test_without_postgres_it_is_not_ready_and_says_nothing_of_the_address(redis_url: str) -> None:
    answer = _client(f"postgresql://tidings:secret@127.0.0.1:{_closed_port()}/x", redis_url).get("/readyz")

    assert answer.status_code == 503
    assert answer.json == {"status": "not ready", "stores": {"postgres": "away", "redis": "ok"}}


def test_stores_that_hang_cost_one_budget_together(silent_port: int) -> None:
    client = _client(f"postgresql://tidings@127.0.0.1:{silent_port}/x", f"redis://127.0.0.1:{silent_port}/0")

    started = time.monotonic()
    answer = client.get("/readyz")

    assert answer.status_code == 503
    assert time.monotonic() - started < health.BUDGET_S + 0.5


def test_a_hanging_store_is_not_asked_again_and_again(silent_port: int, redis_url: str) -> None:
    asked = []
    release = threading.Event()

    def hang() -> None:
        asked.append(1)
        release.wait(30)

    readiness = health.Readiness({"postgres": hang})
    looks = [readiness.look() for _ in range(2)]
    readiness._known_until = 0.0
    looks.append(readiness.look())
    release.set()

    assert looks == [{"postgres": False}] * 3
    assert len(asked) == 1


def test_a_process_without_stores_is_still_alive() -> None:
    client = _client(f"postgresql://127.0.0.1:{_closed_port()}/x", f"redis://127.0.0.1:{_closed_port()}/0")

    assert client.get("/healthz").json == {"status": "alive"}

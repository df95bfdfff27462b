from collections.abc import Iterator
from contextlib import ExitStack
from typing import Protocol

import pytest

from shared.ledger.db import Ledger
from tests.integration.workers.inprocess import InProcess, make_settings
from tests.support.books import assert_books_balance
from tests.support.scripted_http import ScriptedHttp, scripted_http


class MakeWorker(Protocol):
    def __call__(self, **settings: object) -> InProcess: ...


@pytest.fixture
def make_worker(ledger: Ledger, database_url: str, redis_url: str) -> Iterator[MakeWorker]:
    """Worker processes in this one, each with its lease, pool, link and broker; after the test the books balance."""
    with ExitStack() as ends:

        def make(**settings: object) -> InProcess:
            return ends.enter_context(InProcess(make_settings(database_url, redis_url, **settings)))

        yield make
    assert_books_balance(ledger)


@pytest.fixture
def provider() -> Iterator[ScriptedHttp]:
    """A CHES that takes everything until told otherwise."""
    with scripted_http() as server:
        yield server


@pytest.fixture
def worker(make_worker: MakeWorker) -> InProcess:
    """One worker over the sandbox."""
    return make_worker()


@pytest.fixture
def ches(make_worker: MakeWorker, provider: ScriptedHttp) -> InProcess:
    """One worker over the scripted CHES."""
    return make_worker(**ches_settings(provider))


def ches_settings(provider: ScriptedHttp) -> dict[str, object]:
    from tests.integration.workers.ches import serve

    serve(provider)
    return {
        "email_provider": "ches",
        "ches_base_url": f"{provider.url}/api/v1",
        "ches_token_url": f"{provider.url}/token",
        "ches_client_id": "client",
        "ches_client_secret": "secret",
        "ches_timeout_ms": 20_000,
        "ches_max_concurrent_requests": 50,
    }

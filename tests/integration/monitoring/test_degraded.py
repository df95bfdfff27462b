"""What the pages say, and how soon, while a store hangs: frozen (it takes connections and never answers) or both."""

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from statistics import median
from typing import Any

import pytest
from sqlalchemy import event
from werkzeug.test import TestResponse

from admin.app import create_app
from admin.extensions import db, installed
from admin.local.place import server_account
from admin.local.postgres import Postgres
from admin.local.tether import Tether
from admin.local.valkey import Valkey
from shared.ledger.db import Ledger
from shared.ledger.migrate import upgrade
from shared.settings import load
from tests.support.browser import SECRET_KEY, Browser, text_of
from tests.support.freezer import Freezer
from tests.support.page_addresses import fill, routes_without
from tests.support.servers import POSTGRES_OPTIONS, server_folder
from tests.support.waiting import wait_until

OVERVIEW, QUEUES = "/admin/monitoring", "/admin/monitoring/queues"
#: Seconds: a page waits this long at most, on a machine that has other things to do.
PATIENCE_S = 8.0
#: Seconds: less than a page takes that asks a frozen Postgres, more than half a second for the next snapshot.
UNASKED_S = 1.4
#: What holds no frame: files, and the HTML of a letter.
BARE = (".csv", "/html")


class Stores:
    """Both stores, and the pages over them."""

    def __init__(self, postgres: Freezer, valkey: Freezer) -> None:
        self.postgres, self.valkey = postgres, valkey
        upgrade(postgres.url)
        self.app = create_app(
            load(database_url=postgres.url, redis_url=valkey.url, secret_key=SECRET_KEY, public_url="http://127.0.0.1")
        )
        ledger = Ledger(postgres.url, size=2, name="tests")
        ledger.open()
        self.addresses = fill(ledger)
        ledger.close()
        self.filled_ms = time.time() * 1000
        self.browser = Browser(self.app)

    def document(self) -> Any:
        answer = self.browser.get(QUEUES, Accept="application/json")
        assert answer.status_code == 200, answer.text
        return answer.get_json()

    def wait_for(self, **stores: str) -> Any:
        """Give the first snapshot with what was put into the ledger in which the stores are so."""

        def found() -> Any:
            answer = self.browser.get(QUEUES, Accept="application/json")
            document = answer.get_json() if answer.status_code == 200 else None
            if not document or document["v"] < self.filled_ms:
                return None
            states = {name: store["status"] for name, store in document["stores"].items()}
            return document if states.items() >= stores.items() else None

        return wait_until(found, timeout=40, what=f"a snapshot with {stores}")

    def open(self) -> tuple[int, str]:
        """Open the Overview, in time."""
        answer, took_s = self.look(OVERVIEW)
        assert took_s < PATIENCE_S
        return answer.status_code, text_of(answer)

    def look(self, path: str) -> tuple[TestResponse, float]:
        """Open a page; the answer, and the seconds it took."""
        started = time.monotonic()
        answer = self.browser.get(path)
        return answer, time.monotonic() - started

    def statuses(self, document: Any) -> dict[str, str]:
        return {name: entry["status"] for name, entry in document["sections"].items()}


@pytest.fixture(scope="module")
def both(tether: Tether) -> Iterator[Stores]:
    with ExitStack() as stack:
        postgres = Freezer(
            Postgres(
                stack.enter_context(server_folder()),
                tether=tether, account=server_account(), options=POSTGRES_OPTIONS,
            )
        )  # fmt: skip
        stack.callback(postgres.stop)
        valkey = Freezer(Valkey(stack.enter_context(server_folder()), tether=tether, account=server_account()))
        stack.callback(valkey.stop)
        stores = Stores(postgres, valkey)
        yield stores
        postgres.thaw()
        valkey.thaw()
        with stores.app.app_context():
            db.engine.dispose()
        installed(stores.app).close()


@pytest.fixture
def stores(both: Stores) -> Iterator[Stores]:
    """Both stores as they should be, seen so by the pages."""
    both.postgres.thaw()
    both.valkey.thaw()
    both.wait_for(postgres="ok", redis="ok")
    yield both
    both.postgres.thaw()
    both.valkey.thaw()


def test_a_frozen_redis_leaves_what_postgres_knows_and_the_page_says_what_that_means(stores: Stores) -> None:
    before = stores.document()
    stores.valkey.freeze()
    document = stores.wait_for(redis="away")
    status, text = stores.open()
    assert status == 200
    assert "Redis does not answer" in text
    assert document["sections"]["channels"]["status"] == "ok"
    assert document["v"] > before["v"]
    stale = [name for name, status in stores.statuses(document).items() if status == "stale"]
    assert "redis" in stale
    for name in stale:
        assert document["sections"][name]["data"] == before["sections"][name]["data"] or name != "redis"
        assert document["sections"][name]["at"] <= document["sections"][name]["since"]
    assert stores.document()["stores"]["redis"]["since"] == document["stores"]["redis"]["since"]
    stores.valkey.thaw()
    back = stores.wait_for(redis="ok")
    assert back["stores"]["redis"]["back_at"] == back["at"] > document["at"]


def test_a_frozen_postgres_leaves_the_last_figures_with_their_age_and_says_so(stores: Stores) -> None:
    before = stores.document()
    stores.postgres.freeze()
    document = stores.wait_for(postgres="away")
    status, text = stores.open()
    assert status == 200
    assert "Postgres does not answer" in text
    assert ": Postgres does not answer, first noticed" in text
    entry = document["sections"]["channels"]
    assert (entry["status"], entry["data"]) == ("stale", before["sections"]["channels"]["data"])
    panels = stores.browser.get(f"{OVERVIEW}/panels?page=overview", Accept="application/json").get_json()
    assert (panels["status"], panels["stale_since"]) == ("stale", document["stores"]["postgres"]["since"])
    stores.postgres.thaw()
    again = stores.wait_for(postgres="ok")
    assert again["sections"]["channels"]["status"] == "ok"
    assert again["sections"]["channels"]["since"] is None


def test_with_both_stores_away_there_is_a_page_that_needs_neither(stores: Stores) -> None:
    stores.valkey.freeze()
    stores.postgres.freeze()

    def is_blind() -> bool:
        return stores.browser.get(QUEUES, Accept="application/json").status_code == 503

    wait_until(is_blind, timeout=40, what="a 503")
    status, text = stores.open()
    assert (status, "Neither Postgres nor Redis answers" in text) == (503, True)
    assert re.search(r"first noticed at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", text)
    for path in stores.addresses:
        answer, took_s = stores.look(path)
        assert (answer.status_code, "Neither Postgres nor Redis answers" in text_of(answer)) == (503, True), path
        assert took_s < PATIENCE_S, path


def test_the_pages_that_are_tried_without_their_stores_are_all_there_are(stores: Stores) -> None:
    assert routes_without(stores.app, stores.addresses) == set()
    for path in stores.addresses:
        assert stores.browser.get(path).status_code == 200, path


def test_without_redis_every_page_is_there_and_says_what_is_missing(stores: Stores) -> None:
    stores.valkey.freeze()
    stores.wait_for(redis="away", postgres="ok")
    for path in stores.addresses:
        answer, took_s = stores.look(path)
        assert (answer.status_code, took_s < PATIENCE_S) == (200, True), path
        assert path.endswith(BARE) or path.startswith("/inbox") or "Redis does not answer" in text_of(answer), path


@pytest.mark.parametrize("path", ["/inbox", f"{OVERVIEW}/operations/new?kind=requeue"])
def test_who_comes_first_after_postgres_began_to_hang_asks_only_the_pool_that_does_not_wait_long(
    stores: Stores, path: str
) -> None:
    """Nobody has noticed yet. Such pages ask by another pool, which is patient, but only once it is known to answer."""
    patient, lost = installed(stores.app).ledger.pool, list[object]()
    with stores.app.app_context():
        event.listen(db.engine, "invalidate", lambda *told: lost.append(told))
    assert stores.look(path)[0].status_code == 200  # its pool has a connection
    asked = patient.get_stats()["requests_num"]
    stores.postgres.freeze()
    assert stores.look(path)[0].status_code == 503
    assert (patient.get_stats()["requests_num"], lost) == (asked, [])


def test_without_postgres_every_page_says_so_with_its_age_and_asks_nobody_in_vain(stores: Stores) -> None:
    stores.postgres.freeze()
    stores.wait_for(postgres="away", redis="ok")
    took = []
    for path in stores.addresses:
        answer, took_s = stores.look(path)
        text = text_of(answer)
        took.append(took_s)
        assert took_s < PATIENCE_S, path
        assert "Postgres does not answer" in text, path
        assert re.search(r"As of \d\d:\d\d:\d\d UTC", text), path
        assert 'data-stale-since="2' in answer.text, path
        if answer.status_code != 200:
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5"), path
            assert "Nothing can be changed here meanwhile." in text, path
    assert median(took) < UNASKED_S, took
    failures = text_of(stores.browser.get(f"{OVERVIEW}/failures"))
    for words in ("3 dead-lettered", "As seen", "Cannot be read just now: Postgres does not answer."):
        assert words in failures
    system = stores.browser.get(f"{OVERVIEW}/system").text
    assert 'aria-disabled="true"' in system
    assert "/admin/monitoring/system/queues/" not in system
    denied = stores.browser.post(f"{OVERVIEW}/system/queues/email_bulk/pause", {"reason": "x"})
    assert denied.status_code == 403
    assert "The ledger does not answer: nothing can be changed just now." in text_of(denied)
    stores.postgres.thaw()
    stores.wait_for(postgres="ok")
    assert "/admin/monitoring/system/queues/" in stores.browser.get(f"{OVERVIEW}/system").text

"""A browser before the web process: `browser_person` on `site` (as deployed), `person` on `stage` (in this process)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from playwright.sync_api import Browser

from admin.local.tether import Tether
from shared.domain.roles import Role
from shared.ledger.db import Ledger
from shared.settings import load
from tests.browser.chromium import Person, chromium
from tests.browser.stage import Stage
from tests.support.browser import SECRET_KEY
from tests.support.processes import ProcessStarter
from tests.support.servers import temporary_database
from tests.support.site import Site


@pytest.fixture(scope="session")
def chromium_browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="session")
def browser_database_url(postgres_url: str, migrated_template: str) -> Iterator[str]:
    """One database for all tests of the pages; each begins with it empty."""
    with temporary_database(postgres_url, template=migrated_template) as url:
        yield url


@pytest.fixture(scope="session")
def site_stores(browser_database_url: str, redis_server_url: str) -> dict[str, str]:
    """The settings that name the stores of `site`."""
    return {"DATABASE_URL": browser_database_url, "REDIS_URL": redis_server_url, "REDIS_NAMESPACE": "site"}


@pytest.fixture(scope="session")
def running_site(
    chromium_browser: Browser,
    tether: Tether,
    browser_database_url: str,
    site_stores: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Site]:
    folder: Path = tmp_path_factory.mktemp("site")
    starter = ProcessStarter(tether, folder, lambda: site_stores)
    try:
        yield Site(starter, browser_database_url)
    finally:
        starter.end_all()


@pytest.fixture
def site(running_site: Site, site_stores: dict[str, str]) -> Site:
    """The web process as it is deployed, over an empty ledger and empty queues."""
    running_site.empty()
    with redis.Redis.from_url(site_stores["REDIS_URL"]) as client:
        for key in client.scan_iter(f"{site_stores['REDIS_NAMESPACE']}:broker:*"):
            client.delete(key)
    return running_site


@pytest.fixture
def site_process(site: Site, tether: Tether, site_stores: dict[str, str], tmp_path: Path) -> Iterator[ProcessStarter]:
    """Start a process beside `site`, over its stores; it ends with the test."""
    starter = ProcessStarter(tether, tmp_path, lambda: site_stores)
    yield starter
    starter.end_all()


@pytest.fixture
def site_ledger(site: Site, browser_database_url: str) -> Iterator[Ledger]:
    """The ledger of `site`, to put rows into."""
    ledger = Ledger(browser_database_url, size=4, name="tests")
    ledger.open()
    yield ledger
    ledger.close()


@pytest.fixture
def browser_person(chromium_browser: Browser, site: Site) -> Iterator[Person]:
    """Somebody who is signed in at `site`; the test fails with a fault of any page they open."""
    with chromium_browser.new_context(viewport={"width": 1280, "height": 800}) as context:
        context.add_cookies([site.cookie()])
        person = Person(context, site.url, ready=site.until_it_knows_now)
        yield person
        person.check()


@pytest.fixture(scope="session")
def running_stage(chromium_browser: Browser, browser_database_url: str, redis_server_url: str) -> Iterator[Stage]:
    stage = Stage(
        load(
            database_url=browser_database_url,
            redis_url=redis_server_url,
            redis_namespace="stage",
            secret_key=SECRET_KEY,
            public_url="http://127.0.0.1:8000",
        )
    )
    yield stage
    stage.close()


@pytest.fixture
def stage(running_stage: Stage) -> Stage:
    running_stage.reset()
    return running_stage


@pytest.fixture
def context_options() -> dict[str, Any]:
    """What a test's browser is told; a test overrides it by a parameter."""
    return {}


@pytest.fixture
def person(chromium_browser: Browser, stage: Stage, context_options: dict[str, Any]) -> Iterator[Person]:
    """Somebody who is signed in at `stage`."""
    with chromium_browser.new_context(viewport={"width": 1280, "height": 800}, **context_options) as context:
        name, value = stage.cookie()
        context.add_cookies([{"name": name, "value": value, "url": stage.url}])
        person = Person(context, stage.url)
        yield person
        person.check()


@pytest.fixture
def reader(chromium_browser: Browser, site: Site, stage: Stage) -> Iterator[Person]:
    """Somebody who may only read, at `stage`, over the empty ledger of `site`."""
    with chromium_browser.new_context(viewport={"width": 1280, "height": 800}) as context:
        name, value = stage.cookie(Role.READ)
        context.add_cookies([{"name": name, "value": value, "url": stage.url}])
        person = Person(context, stage.url)
        yield person
        person.check()

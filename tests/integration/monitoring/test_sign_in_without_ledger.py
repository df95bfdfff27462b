"""The way in while the ledger takes nothing: to read, by single sign-on alone, and known to the audit afterwards."""

from collections.abc import Iterator

import pytest
from flask import Flask

from admin.monitoring.sign_in.link import new_link
from shared.ledger.db import Ledger
from tests.integration.monitoring.conftest import MakeApp
from tests.integration.monitoring.test_single_sign_on import audit, sign_in
from tests.support.browser import SECRET_KEY, Browser, text_of
from tests.support.identity_provider import IdentityProvider, identity_provider, settings_for
from tests.support.read_only import read_only
from tests.support.waiting import wait_until

HOME = "/admin/monitoring"
NOBODYS = "postgres://nobody@127.0.0.1:1/nothing"


@pytest.fixture
def provider() -> Iterator[IdentityProvider]:
    with identity_provider() as provider:
        yield provider


@pytest.fixture
def app(make_app: MakeApp, provider: IdentityProvider, redis_url: str) -> Flask:
    return make_app(**settings_for(provider), redis_url=redis_url)


def test_whom_the_provider_vouches_for_reads_until_the_ledger_is_back_and_the_audit_learns_of_it(
    app: Flask, database_url: str, ledger: Ledger
) -> None:
    browser = Browser(app, role=None)
    with read_only(database_url):
        assert sign_in(browser).location == HOME
        assert "kim" in text_of(browser.get(HOME))
        browser.looked_ago(1700)
        assert browser.get(HOME).status_code == 200
        refused = browser.post(f"{HOME}/system/queues/email/pause", {"reason": "x"})
        assert refused.status_code == 403
        assert "nothing can be changed" in text_of(refused)
        browser.looked_ago(1900)
        assert browser.get(HOME).location.startswith("/admin/sign-in?")
        assert sign_in(browser).location == HOME

    wait_until(lambda: len(audit(ledger)) >= 2, what="two sign-ins in the audit")
    for entry in audit(ledger):
        assert entry[:3] == ("kim", "sign in", "ok")
        assert (entry[3] or "").startswith("single sign-on, to read, at 2")
        assert (entry[3] or "").endswith(" UTC while the ledger was away")
    assert browser.get(HOME).location.startswith("/admin/sign-in?")
    assert sign_in(browser).location == HOME
    done = browser.post(f"{HOME}/system/queues/email/pause", {"reason": "x"})
    assert done.location.startswith(f"{HOME}/system"), "a full sign-in may act"


def test_a_postgres_that_is_gone_is_no_other(make_app: MakeApp, provider: IdentityProvider, redis_url: str) -> None:
    app = make_app(**settings_for(provider), redis_url=redis_url, database_url=NOBODYS, admin_links="on")
    browser = Browser(app, role=None)
    assert browser.get(HOME).location.startswith("/admin/sign-in?")
    assert sign_in(browser).location == HOME
    page = browser.get(HOME)
    assert page.status_code == 200
    assert "Postgres does not answer" in text_of(page)
    way_in = text_of(Browser(app, role=None).get("/admin/sign-in"))
    assert "can read meanwhile and change nothing" in way_in
    assert "A link cannot be checked until then." in way_in


def test_who_has_no_role_is_told_so_and_the_audit_later(
    app: Flask, provider: IdentityProvider, database_url: str, ledger: Ledger
) -> None:
    provider.person["roles"] = ["OTHER"]
    browser = Browser(app, role=None)
    with read_only(database_url):
        answer = sign_in(browser)
        assert (answer.status_code, "You have no role here" in text_of(answer)) == (403, True)
        assert browser.get(HOME).status_code == 302
    wait_until(lambda: audit(ledger), what="the attempt in the audit")
    assert audit(ledger)[0][:3] == ("kim", "sign in", "denied")


def test_a_link_waits_for_the_ledger_and_is_not_used_up(
    make_app: MakeApp, redis_url: str, database_url: str, ledger: Ledger
) -> None:
    with ledger.transaction() as connection:
        link = new_link(connection, "", SECRET_KEY, operator="kim")
    app = make_app(redis_url=redis_url)
    browser, reader = Browser(app, role=None), Browser(app)
    with read_only(database_url):
        for each in (browser, reader):
            answer = each.get(link)
            assert (answer.status_code, "open it again once the ledger is back" in text_of(answer)) == (503, True)
            assert "tidings admin link" not in answer.text
        assert browser.get(HOME).status_code == 302
        assert reader.get(HOME).status_code == 200, "it lost the session that it had"
    assert browser.get(link).location == HOME

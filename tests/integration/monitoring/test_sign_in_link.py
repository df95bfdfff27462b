"""One-time links: once, for a while, where they are allowed, and not left lying about."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from flask import Flask
from werkzeug.test import TestResponse

from admin.monitoring.sign_in.link import LINK_LASTS_S, new_link
from shared.ledger.db import Ledger
from tests.integration.monitoring.conftest import MakeApp
from tests.support.browser import SECRET_KEY, Browser, text_of

HOME = "/admin/monitoring"


@pytest.fixture
def browser(app: Flask) -> Browser:
    """A browser of somebody who is not signed in."""
    return Browser(app, role=None)


@pytest.fixture
def link(ledger: Ledger) -> str:
    with ledger.transaction() as connection:
        return new_link(connection, "http://localhost/", SECRET_KEY, operator="kim").removeprefix("http://localhost")


def test_a_link_signs_in_and_leaves_its_token_nowhere(browser: Browser, link: str, ledger: Ledger) -> None:
    answer = browser.get(link)

    assert (answer.status_code, answer.location) == (302, HOME)
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert answer.headers["Cache-Control"] == "no-store"
    page = browser.get(HOME)
    assert page.status_code == 200
    assert "kim" in text_of(page)
    token = link.rpartition("/")[2].partition(".")[0]
    with ledger.transaction() as connection:
        rows = connection.execute("SELECT * FROM sign_in_link, operator_session, audit").fetchall()
    assert token not in str(rows)
    assert token not in browser.cookies()


def test_a_link_works_once(app: Flask, browser: Browser, link: str) -> None:
    assert browser.get(link).status_code == 302
    other = Browser(app, role=None)
    assert "used before" in text_of(other.get(link))
    assert other.get(HOME).status_code == 302


def test_of_many_who_open_a_link_at_once_one_gets_in(app: Flask, link: str) -> None:
    def open_it(number: int) -> TestResponse:
        return browsers[number].get(link)

    browsers = [Browser(app, role=None) for _ in range(8)]
    with ThreadPoolExecutor(8) as threads:
        codes = sorted(answer.status_code for answer in threads.map(open_it, range(8)))
    assert codes == [302] + [403] * 7


def test_a_link_is_good_for_a_quarter_of_an_hour(browser: Browser, link: str, ledger: Ledger) -> None:
    with ledger.transaction() as connection:
        lasts = connection.execute("SELECT extract(epoch FROM expires_at - created_at) FROM sign_in_link").fetchone()
        connection.execute("UPDATE sign_in_link SET expires_at = now() - interval '1 second'")
    assert lasts == (LINK_LASTS_S,)
    assert "too old" in text_of(browser.get(link))


def test_a_preview_does_not_use_a_link_up(browser: Browser, link: str) -> None:
    assert browser.client.head(link).status_code == 204
    assert browser.get(link).status_code == 302


def test_a_link_is_nothing_to_an_installation_with_another_secret(make_app: MakeApp, link: str) -> None:
    other = Browser(make_app(secret_key="b" * 40), role=None)
    assert "not made here" in text_of(other.get(link))
    assert other.get("/admin/sign-in/link/guess").status_code == 403
    assert other.get(HOME).status_code == 302


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"environment": "Production"}, "ENVIRONMENT is production"),
        ({"admin_links": "off"}, "ADMIN_LINKS is off"),
        ({"secret_key": None}, "SECRET_KEY is not set"),
    ],
)
def test_where_links_are_off_nothing_opens_the_pages_and_they_say_how_to_set_it_up(
    make_app: MakeApp, link: str, settings: dict[str, str | None], why: str
) -> None:
    browser = Browser(make_app(**settings), role=None)

    assert why in text_of(browser.get(link))
    for path in ("/admin", HOME, "/inbox", "/admin/monitoring/audit"):
        answer = browser.get(path, follow=True)
        assert answer.status_code == 403, path
        assert "OIDC_ISSUER" in answer.text
        assert why in text_of(answer)


def test_links_can_be_allowed_in_production_too(make_app: MakeApp, link: str) -> None:
    assert Browser(make_app(environment="production", admin_links="on"), role=None).get(link).status_code == 302


def test_a_link_leads_to_the_page_that_was_asked_for_and_nowhere_else(browser: Browser, link: str) -> None:
    assert browser.get(f"{link}?return_to=/inbox").location == "/inbox"


def test_a_link_never_leads_elsewhere(browser: Browser, link: str) -> None:
    assert browser.get(f"{link}?return_to=//evil.example").location == HOME


def test_signing_in_and_every_refusal_of_a_real_link_are_in_the_audit(
    browser: Browser, link: str, ledger: Ledger
) -> None:
    for path in (link, link, "/admin/sign-in/link/guess"):
        browser.get(path)
    with ledger.transaction() as connection:
        rows = connection.execute("SELECT operator, action, result, role FROM audit ORDER BY id").fetchall()
    assert rows == [
        ("kim", "sign-in link", "made", None),
        ("kim", "sign in", "ok", "admin"),
        ("nobody", "sign in", "denied", None),
    ]


def test_the_cookie_is_of_another_session_after_each_sign_in(app: Flask, link: str, ledger: Ledger) -> None:
    victim = Browser(app, name="planted")
    planted = victim.session_id()
    victim.get(link)

    assert victim.session_id() != planted
    with ledger.transaction() as connection:
        rows = connection.execute("SELECT operator FROM operator_session WHERE ended_at IS NULL").fetchall()
    assert rows == [("kim",)]

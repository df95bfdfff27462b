"""Signing in and out as a person does it, with a provider and with a link."""

import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect
from werkzeug.serving import make_server

from admin.app import create_app
from admin.extensions import db, installed
from admin.monitoring.sign_in.link import new_link
from shared.ledger.db import Ledger
from shared.settings import load
from tests.support.browser import SECRET_KEY
from tests.support.identity_provider import IdentityProvider, identity_provider, settings_for
from tests.support.site import free_port

HOME = "/admin/monitoring"


@pytest.fixture
def provider() -> Iterator[IdentityProvider]:
    with identity_provider() as provider:
        yield provider


@pytest.fixture
def url(database_url: str, redis_url: str, provider: IdentityProvider) -> Iterator[str]:
    """An installation with single sign-on and links."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    given = {"database_url": database_url, "redis_url": redis_url, "secret_key": SECRET_KEY, "admin_links": "on"}
    app = create_app(load(**{**settings_for(provider), **given, "public_url": url, "admin_read_role": "NOTIFY_READER"}))
    server = make_server("127.0.0.1", port, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield url
    server.shutdown()
    thread.join()
    server.server_close()
    with app.app_context():
        db.engine.dispose()
    installed(app).close()


@pytest.fixture
def context(chromium_browser: Browser) -> Iterator[BrowserContext]:
    with chromium_browser.new_context(viewport={"width": 1280, "height": 800}) as context:
        yield context


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """Their page; a refusal by the pages' own policy or an error of a script fails the test."""
    faults: list[str] = []
    page = context.new_page()
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda line: faults.append(line.text) if "Content Security Policy" in line.text else None)
    yield page
    assert faults == []


def path_of(page: Page) -> str:
    parts = urlsplit(page.url)
    return parts.path + (f"?{parts.query}" if parts.query else "")


def test_single_sign_on_leads_back_to_the_page_that_was_asked_for_and_sign_out_ends_it(page: Page, url: str) -> None:
    page.goto(f"{url}{HOME}/audit?operator=kim")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    page.get_by_role("link", name="Sign in with single sign-on").click()

    expect(page.get_by_role("heading", name="Audit")).to_be_visible()
    assert path_of(page) == f"{HOME}/audit?operator=kim"
    expect(page.locator(".person")).to_contain_text("kim")
    expect(page.get_by_role("row").nth(1)).to_contain_text("sign in")

    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="You are signed out")).to_be_visible()
    expect(page.get_by_role("link", name="Sign out there as well")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_somebody_without_the_role_reads_which_one_is_missing(page: Page, url: str, provider: IdentityProvider) -> None:
    provider.person["roles"] = ["OTHER"]
    page.goto(f"{url}{HOME}")
    page.get_by_role("link", name="Sign in with single sign-on").click()
    expect(page.get_by_role("heading", name="You have no role here, kim")).to_be_visible()
    expect(page.get_by_text("Yours at roles: OTHER.")).to_be_visible()


def test_a_reader_is_told_so_beside_the_name(page: Page, url: str, provider: IdentityProvider) -> None:
    provider.person["roles"] = ["NOTIFY_READER"]
    page.goto(f"{url}/admin/sign-in/start")
    expect(page.locator(".person")).to_contain_text("kim · read only")


def test_a_link_signs_in_once_and_does_not_stay_in_the_address(
    chromium_browser: Browser, page: Page, url: str, ledger: Ledger
) -> None:
    with ledger.transaction() as connection:
        link = new_link(connection, url, SECRET_KEY, operator="robin")
    page.goto(link)
    expect(page.locator(".person")).to_contain_text("robin")
    assert path_of(page) == HOME
    assert "link" not in page.evaluate("document.referrer")
    with chromium_browser.new_context() as other:
        late = other.new_page()
        late.goto(link)
        expect(late.get_by_text("This link was used before; it works once.")).to_be_visible()


def test_a_form_of_another_site_changes_nothing(context: BrowserContext, page: Page, url: str, ledger: Ledger) -> None:
    page.goto(f"{url}/admin/sign-in/start")
    token = page.locator(".person input[name=csrf_token]").get_attribute("value")
    elsewhere = context.new_page()
    elsewhere.route(
        "http://elsewhere.example/",
        lambda route: route.fulfill(
            content_type="text/html",
            body=f'<form method="post" action="{url}/admin/sign-out">'
            f'<input name="csrf_token" value="{token}"><button>Win a prize</button></form>',
        ),
    )
    elsewhere.goto("http://elsewhere.example/")
    elsewhere.get_by_role("button").click()
    expect(elsewhere.locator("body")).to_contain_text("You are not signed in any more")  # the cookie stayed at home
    page.reload()
    expect(page.locator(".person")).to_contain_text("kim")

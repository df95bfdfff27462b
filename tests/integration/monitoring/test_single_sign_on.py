"""Single sign-on against a real provider, from the link to the page, and what must not get in."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest
import requests
from flask import Flask
from joserfc.jwk import RSAKey
from werkzeug.test import TestResponse

from shared.ledger.db import Ledger
from tests.integration.monitoring.conftest import MakeApp
from tests.support.browser import Browser, text_of
from tests.support.digests import make_channel
from tests.support.identity_provider import Claims, IdentityProvider, identity_provider, settings_for

HOME = "/admin/monitoring"


@pytest.fixture
def provider() -> Iterator[IdentityProvider]:
    with identity_provider() as provider:
        yield provider


@pytest.fixture
def app(make_app: MakeApp, provider: IdentityProvider) -> Flask:
    return make_app(**settings_for(provider), admin_read_role="NOTIFY_READER")


@pytest.fixture
def browser(app: Flask) -> Browser:
    """A browser of somebody who is not signed in."""
    return Browser(app, role=None)


def go_to_provider(browser: Browser, *, return_to: str = HOME) -> str:
    """Begin a sign-in and give the address that the provider sends the browser back to."""
    begun = browser.get(f"/admin/sign-in/start?return_to={return_to}")
    assert begun.status_code == 302, begun.text
    return sent_back_from(begun.location)


def sent_back_from(address: str) -> str:
    with requests.get(address, allow_redirects=False, timeout=5) as answer:
        assert answer.status_code == 302
        back = urlsplit(answer.headers["Location"])
    assert back.netloc == "localhost"
    return f"{back.path}?{back.query}"


def sign_in(browser: Browser, *, return_to: str = HOME) -> TestResponse:
    return browser.get(go_to_provider(browser, return_to=return_to))


def audit(ledger: Ledger) -> list[tuple[str, str, str, str | None]]:
    with ledger.transaction() as connection:
        rows = connection.execute("SELECT operator, action, result, reason FROM audit ORDER BY id").fetchall()
    return [(row[0], row[1], row[2], row[3]) for row in rows]


def age_sessions(ledger: Ledger, browser: Browser, *, seconds: int) -> None:
    """Let the last confirmation of the role be so long ago, and the cookie's belief be over."""
    with ledger.transaction() as connection:
        connection.execute(
            "UPDATE operator_session SET checked_at = checked_at - %s * interval '1 second',"
            " check_begun_at = check_begun_at - %s * interval '1 second'",
            (seconds, seconds),
        )
    with browser.client.session_transaction() as kept:
        kept["operator"]["looked"] -= seconds
        kept.modified = True


# --- the way in ----------------------------------------------------------------------------------------------


def test_somebody_with_the_role_comes_back_to_the_page_they_wanted(
    browser: Browser, provider: IdentityProvider, ledger: Ledger
) -> None:
    wanted = f"{HOME}?since=1h"
    asked = browser.get(wanted)
    assert asked.location == "/admin/sign-in?return_to=/admin/monitoring?since%3D1h"
    assert "/admin/sign-in/start" in browser.get(asked.location).text

    answer = sign_in(browser, return_to="/admin/monitoring?since%3D1h")

    assert (answer.status_code, answer.location) == (302, wanted)
    page = browser.get(wanted)
    assert page.status_code == 200
    assert "kim" in text_of(page)
    request = provider.asked[0]
    assert request["redirect_uri"] == "http://localhost/admin/sign-in/callback"
    assert request["code_challenge_method"] == "S256"
    assert request["scope"] == "openid profile email"
    assert len(request["state"]) >= 20
    assert len(request["nonce"]) >= 20
    assert audit(ledger) == [("kim", "sign in", "ok", "single sign-on")]


def test_the_audit_tells_two_people_of_one_name_apart(
    browser: Browser, provider: IdentityProvider, ledger: Ledger
) -> None:
    other = Browser(browser.app, role=None)
    sign_in(browser)
    provider.person = {**provider.person, "sub": "18"}
    sign_in(other)
    make_channel(ledger, "https://example.com/hook")
    disable = f"{HOME}/digests/channels/ops/disable"
    browser.post(disable, {"reason": "it moves"})
    other.post(disable.replace("disable", "enable"))
    other.post("/admin/sign-out")
    with ledger.transaction() as connection:
        rows = connection.execute("SELECT operator, action, account FROM audit ORDER BY id").fetchall()
    assert rows == [
        ("kim", "sign in", "17"),
        ("kim", "sign in", "18"),
        ("kim", "disable channel", "17"),
        ("kim", "enable channel", "18"),
        ("kim", "sign out", "18"),
    ]
    only = text_of(browser.get(f"{HOME}/audit?account=18"))
    assert "kim 18 admin enable channel" in only
    assert "kim 17" not in only


def test_an_account_that_is_an_address_is_shown_masked(
    browser: Browser, provider: IdentityProvider, ledger: Ledger
) -> None:
    provider.person = {**provider.person, "sub": "kim.possible@example.com"}
    sign_in(browser)
    for path in (f"{HOME}/audit", f"{HOME}/audit.csv"):
        page = browser.get(path).text
        assert "k***@" in page
        assert "possible" not in page


def test_roles_may_come_by_userinfo_alone(browser: Browser, provider: IdentityProvider) -> None:
    provider.claims_in = {"userinfo"}
    assert sign_in(browser).location == HOME
    assert "kim" in text_of(browser.get(HOME))


def test_userinfo_about_somebody_else_lets_nobody_in(browser: Browser, provider: IdentityProvider) -> None:
    provider.claims_in, provider.userinfo_sub = {"userinfo"}, "18"
    assert "somebody else" in sign_in(browser).text
    assert browser.get(HOME).status_code == 302


def test_a_key_that_the_provider_changed_is_fetched(browser: Browser, provider: IdentityProvider) -> None:
    sign_in(browser)
    provider.change_key()
    other = Browser(browser.app, role=None)
    assert sign_in(other).location == HOME


def test_the_reading_role_reads_and_changes_nothing(browser: Browser, provider: IdentityProvider) -> None:
    provider.person["roles"] = ["NOTIFY_READER"]
    sign_in(browser)
    assert "read only" in text_of(browser.get(HOME))


@pytest.mark.parametrize(
    "roles",
    [
        ["NOTIFY_ADMIN_X"], ["X_NOTIFY_ADMIN"], ["notify_admin"], [" NOTIFY_ADMIN"], ["NOTIFY_ADMIN "], ["NOTIFY_ADMI"],
        ["NOTIFY_ADMIN,OTHER"], "OTHER NOTIFY_ADMIN", ["NOTIFY.ADMIN"], [["NOTIFY_ADMIN"]], {"NOTIFY_ADMIN": True},
        True, [], None,
    ],
)  # fmt: skip
def test_a_role_that_only_looks_like_ours_is_none(
    browser: Browser, provider: IdentityProvider, ledger: Ledger, roles: object
) -> None:
    provider.person["roles"] = roles
    answer = sign_in(browser)

    assert answer.status_code == 403
    assert "NOTIFY_ADMIN" in text_of(answer)
    assert "roles" in text_of(answer)
    assert browser.get(HOME).status_code == 302
    assert audit(ledger) == [("kim", "sign in", "denied", "no role")]


def test_a_provider_that_sends_no_such_claim_is_told_apart(browser: Browser, provider: IdentityProvider) -> None:
    del provider.person["roles"]
    assert "sent no roles at roles" in text_of(sign_in(browser))


# --- forged answers ------------------------------------------------------------------------------------------

SPOILT: dict[str, Callable[[Claims], Claims]] = {
    "another audience": lambda claims: {**claims, "aud": "somebody-else"},
    "another audience, made out to us": lambda claims: {**claims, "aud": "somebody-else", "azp": "tidings"},
    "no audience": lambda claims: {name: claims[name] for name in claims if name != "aud"},
    "another issuer": lambda claims: {**claims, "iss": "https://elsewhere.example"},
    "no issuer": lambda claims: {name: claims[name] for name in claims if name != "iss"},
    "an old token": lambda claims: {**claims, "exp": claims["exp"] - 3600, "iat": claims["iat"] - 3600},
    "no end": lambda claims: {name: claims[name] for name in claims if name != "exp"},
    "another nonce": lambda claims: {**claims, "nonce": "guessed"},
    "no nonce": lambda claims: {name: claims[name] for name in claims if name != "nonce"},
    "another party": lambda claims: {**claims, "azp": "somebody-else"},
    "no subject": lambda claims: {name: claims[name] for name in claims if name != "sub"},
}


@pytest.mark.parametrize("what", SPOILT)
def test_an_id_token_that_is_not_for_this_sign_in_lets_nobody_in(
    browser: Browser, provider: IdentityProvider, what: str
) -> None:
    provider.spoil_claims = SPOILT[what]
    assert sign_in(browser).status_code == 403
    assert browser.get(HOME).status_code == 302


def test_an_id_token_that_the_provider_did_not_sign_lets_nobody_in(
    browser: Browser, provider: IdentityProvider
) -> None:
    stranger = RSAKey.generate_key(2048, parameters={"kid": "first"}, auto_kid=False)
    for sign in (
        provider.unsigned,
        provider.signed_with_the_secret,
        lambda claims: provider.signed(claims, key=stranger),
        lambda claims: f"{provider.signed(claims).rpartition('.')[0]}.AAAA",
        lambda claims: "no token at all",
    ):
        provider.sign = sign
        assert sign_in(browser).status_code in {403, 503}
        assert browser.get(HOME).status_code == 302


def test_an_answer_to_another_sign_in_lets_nobody_in(browser: Browser, app: Flask) -> None:
    attacker = Browser(app, role=None)
    back = go_to_provider(attacker)
    assert "no sign-in that this browser began" in browser.get(back).text  # never began
    go_to_provider(browser)
    assert browser.get(back).status_code == 403  # began another
    assert browser.get("/admin/sign-in/callback").status_code == 403
    assert browser.get("/admin/sign-in/callback?code=x&state=").status_code == 403
    assert browser.get(HOME).status_code == 302


def test_an_answer_counts_once(browser: Browser) -> None:
    back = go_to_provider(browser)
    assert browser.get(back).status_code == 302
    assert browser.get(back).status_code == 403


def test_what_the_provider_says_of_a_fault_is_not_repeated(browser: Browser) -> None:
    answer = browser.get("/admin/sign-in/callback?error=access_denied&error_description=%3Cscript%3Ealert(1)")
    assert answer.status_code == 403
    assert "access_denied" in answer.text
    assert "alert" not in answer.text


@pytest.mark.parametrize(
    "return_to",
    [
        "https://evil.example/", "//evil.example", "/\\evil.example", "\\/evil.example", "/admin//evil.example",
        "/admin/../../evil", "javascript:alert(1)", "/admin/sign-out", "/admin/sign-in/start", "/api/v1/sends",
        "/administrators", "/admin%0d%0aX:1", "/admin@evil.example", "/admin\tx", "",
    ],
)  # fmt: skip
def test_after_a_sign_in_a_browser_stays_with_us(browser: Browser, return_to: str) -> None:
    begun = browser.client.get("/admin/sign-in/start", query_string={"return_to": return_to})

    assert browser.get(sent_back_from(begun.location)).location == HOME


def test_a_provider_that_is_away_or_another_is_told_and_asked_again(
    browser: Browser, provider: IdentityProvider
) -> None:
    provider.says_it_is = "https://elsewhere.example"
    answer = browser.get("/admin/sign-in/start")
    assert answer.status_code == 503
    assert "https://elsewhere.example" in answer.text
    provider.says_it_is = provider.issuer
    assert sign_in(browser).location == HOME

    provider.server.stop()
    assert browser.get("/admin/sign-in/start").status_code in {302, 503}


def test_many_sign_ins_under_way_do_not_fill_the_cookie(browser: Browser) -> None:
    for _ in range(10):
        back = go_to_provider(browser)
    with browser.client.session_transaction() as kept:
        assert len([key for key in kept if key.startswith("_state")]) == 3
    assert browser.get(back).location == HOME


# --- the role afterwards -------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_refresh", [True, False])
def test_the_role_is_asked_for_again_and_its_end_ends_the_access(
    browser: Browser, provider: IdentityProvider, ledger: Ledger, *, with_refresh: bool
) -> None:
    provider.with_refresh = with_refresh
    sign_in(browser)
    for _ in range(2):
        asked = len(provider.server.received)
        age_sessions(ledger, browser, seconds=301)
        assert browser.get(HOME).status_code == 200
        assert len(provider.server.received) > asked
        asked = len(provider.server.received)
        age_sessions(ledger, browser, seconds=60)
        assert browser.get(HOME).status_code == 200
        assert len(provider.server.received) == asked

    provider.person["roles"] = ["OTHER"]
    age_sessions(ledger, browser, seconds=301)
    assert browser.get(HOME).status_code == 302
    provider.person["roles"] = ["NOTIFY_ADMIN"]
    assert browser.get(HOME).status_code == 302
    assert audit(ledger)[1:] == [("kim", "sign out", "ended", "the role is gone")]


def test_an_account_that_is_shut_ends_the_access(browser: Browser, provider: IdentityProvider, ledger: Ledger) -> None:
    sign_in(browser)
    provider.refuses = True
    age_sessions(ledger, browser, seconds=301)
    assert browser.get(HOME).status_code == 302
    with ledger.transaction() as connection:
        assert connection.execute("SELECT tokens FROM operator_session").fetchall() == [(None,)]


def test_a_role_that_became_smaller_is_so_at_once(browser: Browser, provider: IdentityProvider, ledger: Ledger) -> None:
    sign_in(browser)
    provider.person["roles"] = ["NOTIFY_READER"]
    age_sessions(ledger, browser, seconds=301)
    assert "read only" in text_of(browser.get(HOME))


def test_while_the_provider_is_away_one_may_read_for_a_while_and_change_nothing(
    browser: Browser, provider: IdentityProvider, ledger: Ledger
) -> None:
    sign_in(browser)
    provider.server.stop()
    age_sessions(ledger, browser, seconds=600)
    page = browser.get(HOME)
    assert page.status_code == 200
    assert "read only" in text_of(page)
    age_sessions(ledger, browser, seconds=1800)
    assert browser.get(HOME).status_code == 302


def test_of_many_requests_at_the_same_time_one_asks_the_provider(
    browser: Browser, provider: IdentityProvider, ledger: Ledger
) -> None:
    sign_in(browser)
    age_sessions(ledger, browser, seconds=301)
    asked = len(provider.server.posts("/realm/token"))
    copies = [Browser(browser.app, role=None) for _ in range(6)]
    for copy in copies:
        copy.client.set_cookie("tidings", browser.cookies(), domain="localhost")
    with ThreadPoolExecutor(6) as threads:
        answers = list(threads.map(lambda copy: copy.get("/admin/sign-in").location, copies))
    assert answers == [HOME] * 6
    assert len(provider.server.posts("/realm/token")) == asked + 1


def test_a_session_ends_after_eight_hours_whatever_was_done_in_it(
    browser: Browser, provider: IdentityProvider, ledger: Ledger
) -> None:
    sign_in(browser)
    with browser.client.session_transaction() as kept:
        assert 8 * 3600 - 60 < kept["operator"]["until"] - kept["operator"]["looked"] <= 8 * 3600
    with ledger.transaction() as connection:
        connection.execute("UPDATE operator_session SET expires_at = now()")
    age_sessions(ledger, browser, seconds=20)
    assert browser.get(HOME).status_code == 302


def test_what_the_ledger_keeps_of_the_providers_tokens_cannot_be_read(
    browser: Browser, provider: IdentityProvider, ledger: Ledger
) -> None:
    sign_in(browser)
    with ledger.transaction() as connection:
        row = connection.execute("SELECT tokens FROM operator_session").fetchone()
    assert row is not None
    assert not any(token.encode() in row[0] for token in provider.refresh_tokens)


def test_signing_out_leads_to_the_providers_sign_out_too(
    browser: Browser, provider: IdentityProvider, ledger: Ledger
) -> None:
    sign_in(browser)
    answer = browser.post("/admin/sign-out", follow=True)

    assert f"{provider.issuer}/logout?client_id=tidings" in answer.text
    assert browser.get(HOME).status_code == 302
    assert audit(ledger)[-1] == ("kim", "sign out", "ok", None)

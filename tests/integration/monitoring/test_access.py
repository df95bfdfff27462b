"""The guard in front of every page: who gets where, cookies, forms of other sites, what the audit keeps."""

import base64
import json
import re
import zlib
from collections.abc import Iterator

import pytest
from flask import Flask
from psycopg_pool import PoolTimeout
from werkzeug.routing import Rule

from admin.monitoring import access
from admin.monitoring.access import Need, need_of
from shared.domain.roles import Role
from shared.ledger.db import Ledger
from tests.integration.monitoring.conftest import MakeApp
from tests.support.browser import Browser, text_of

HOME = "/admin/monitoring"
SIGN_OUT = "/admin/sign-out"
#: Blueprints that are for programs and ask for keys, or for nothing, themselves.
FOR_PROGRAMS = {"api", "health", "metrics", "static"}
ARGUMENTS = {
    "uuid": "00000000-0000-4000-8000-000000000000", "int": "1", "string": "x", "default": "x", "path": "x"
}  # fmt: skip


def page_rules(app: Flask) -> Iterator[tuple[Rule, str, str]]:
    """Every route of the pages, with an address of it, for each method it takes."""
    for rule in app.url_map.iter_rules():
        if rule.endpoint.partition(".")[0] in FOR_PROGRAMS or rule.endpoint == "static":
            continue
        path = re.sub(r"<(?:(\w+)(?:\([^)]*\))?:)?\w+>", lambda found: ARGUMENTS[found[1] or "default"], rule.rule)
        for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"}):
            yield rule, method, path


def test_every_page_says_what_it_needs_and_nothing_that_acts_can_be_got(app: Flask) -> None:
    for rule, method, path in page_rules(app):
        need = need_of(app.view_functions[rule.endpoint])
        assert need is not None, f"{path} has no mark: put @reads, @acts or @open_to_all above its view"
        assert re.match(r"/(admin|inbox)(/|$)", path), f"{path} is a page outside of /admin: the guard does not see it"
        if method != "GET":
            assert need is not Need.NOTHING, f"{method} {path} changes something and asks for nobody"


def test_each_route_lets_in_whom_it_should_and_nobody_else(app: Flask, ledger: Ledger) -> None:
    people = {
        "nobody": Browser(app, role=None),
        "reader": Browser(app, role=Role.READ, name="robin"),
        "admin": Browser(app, role=Role.ADMIN, name="kim"),
    }
    tried = set()
    for rule, method, path in page_rules(app):
        need = need_of(app.view_functions[rule.endpoint])
        if need is Need.NOTHING or path == SIGN_OUT:
            continue
        for who, browser in people.items():
            answer = browser.get(path) if method == "GET" else browser.post(path)
            tried.add((need, method, who))
            place = f"{who}: {method} {path} → {answer.status_code}"
            if who == "nobody":
                assert answer.status_code == (302 if method == "GET" else 401), place
                assert method != "GET" or answer.location.startswith("/admin/sign-in?return_to="), place
            elif who == "reader" and need is Need.ACTING:
                assert answer.status_code == 403, place
                assert "NOTIFY_ADMIN" in answer.text, place
            else:
                assert answer.status_code not in {401, 403, 500}, place
            answer.close()
    assert (Need.READING, "GET", "reader") in tried


def test_every_address_can_be_opened_and_loaded_again(app: Flask) -> None:
    """One that takes a form alone leads to the page of the form; what is not there says so."""
    browser = Browser(app)
    opened = {rule.rule for rule, method, _ in page_rules(app) if method == "GET"}
    forms = 0
    for rule, _, path in page_rules(app):
        if path == SIGN_OUT:
            continue
        answer = browser.get(path)
        place = f"GET {path} → {answer.status_code}"
        assert answer.status_code not in {405, 500}, place
        if rule.rule not in opened:
            forms += 1
            assert answer.status_code == 303, place
            assert browser.get(answer.location).status_code != 405, place
        answer.close()
    assert forms > 3
    assert browser.get(SIGN_OUT, follow=True).status_code == 200
    assert browser.get("/admin/monitoring/digests/run", Accept="*/*").status_code == 405  # a script is told


def test_what_is_not_there_is_told_only_to_who_is_signed_in(app: Flask) -> None:
    assert Browser(app, role=None).get("/admin/no-such-page").status_code == 302
    answer = Browser(app).get("/admin/no-such-page")
    assert answer.status_code == 404
    assert "There is nothing here" in text_of(answer)


def test_a_page_without_a_mark_is_served_to_nobody(make_app: MakeApp) -> None:
    app = make_app()
    app.add_url_rule("/admin/forgotten", "forgotten", lambda: "secret")
    for role in (None, Role.READ, Role.ADMIN):
        answer = Browser(app, role=role).get("/admin/forgotten")
        assert answer.status_code == 403
        assert "secret" not in answer.text


def test_a_script_is_told_in_json_that_nobody_is_signed_in(app: Flask) -> None:
    answer = Browser(app, role=None).get("/admin/monitoring/queues", Accept="*/*", Sec_Fetch_Mode="cors")
    assert answer.status_code == 401
    assert answer.get_json()["title"] == "Unauthorized"


def test_the_tenants_api_knows_no_sign_in(app: Flask) -> None:
    browser = Browser(app)
    assert browser.get("/api/v1/sends").status_code == 401
    answer = Browser(app, role=None).client.post("/api/v1/sends", json={}, headers={"Sec-Fetch-Site": "cross-site"})
    assert answer.status_code == 401
    assert answer.mimetype == "application/problem+json"
    assert "Set-Cookie" not in answer.headers


def test_a_page_that_breaks_says_so_in_the_frame_with_a_name_for_the_log(make_app: MakeApp) -> None:
    app = make_app()

    @access.reads
    def breaks() -> str:
        raise LookupError("told nobody")

    @access.reads
    def loses_the_ledger() -> str:
        raise PoolTimeout("told nobody")

    app.add_url_rule("/admin/breaks", "breaks", breaks)
    app.add_url_rule("/admin/away", "away", loses_the_ledger)
    browser = Browser(app)
    for path, status, says in (
        ("breaks", 500, "Something went wrong"),
        ("away", 503, "could not be reached for this page"),
    ):
        answer = browser.get(f"/admin/{path}", X_Request_Id="r-17")
        assert answer.status_code == status
        assert says in text_of(answer)
        assert "r-17" in answer.text
        assert "kim" in text_of(answer)
        assert "told nobody" not in answer.text
        script = browser.get(f"/admin/{path}", Accept="*/*")
        assert (script.status_code, script.mimetype) == (status, "application/problem+json")
        assert browser.get("/healthz").status_code == 200


# --- forms ---------------------------------------------------------------------------------------------------


@pytest.fixture
def acting_app(make_app: MakeApp) -> Flask:
    """An application with a form that does something: it counts how often."""
    app = make_app()
    app.extensions["done"] = 0

    @access.acts
    def act() -> str:
        app.extensions["done"] += 1
        return "done"

    app.add_url_rule("/admin/act", "act", act, methods=["GET", "POST"])
    return app


def test_a_form_with_its_token_does_something(acting_app: Flask) -> None:
    assert Browser(acting_app).post("/admin/act").text == "done"
    header = Browser(acting_app)
    assert header.client.post("/admin/act", headers={"X-CSRFToken": header.token()}).status_code == 200
    assert acting_app.extensions["done"] == 2


@pytest.mark.parametrize("token", ["", "wrong", None])
def test_a_form_without_its_token_does_nothing(acting_app: Flask, ledger: Ledger, token: str | None) -> None:
    browser = Browser(acting_app)
    form = {} if token is None else {"csrf_token": token}
    assert browser.client.post("/admin/act", data=form).status_code == 403
    assert acting_app.extensions["done"] == 0
    assert denied(ledger)[0][:2] == ("kim", "POST /admin/act")


def test_the_token_of_somebody_else_does_nothing(acting_app: Flask) -> None:
    other, browser = Browser(acting_app, name="robin"), Browser(acting_app)
    assert browser.post("/admin/act", {"csrf_token": other.token()}).status_code == 403
    assert acting_app.extensions["done"] == 0


@pytest.mark.parametrize("site", ["cross-site", "same-site", "none", "", "anything"])
def test_a_form_that_another_site_sends_does_nothing_even_with_a_token(
    acting_app: Flask, ledger: Ledger, site: str
) -> None:
    answer = Browser(acting_app).post("/admin/act", Sec_Fetch_Site=site)
    assert answer.status_code == 403
    assert "Another site" in text_of(answer)
    assert acting_app.extensions["done"] == 0
    assert "Another site" in denied(ledger)[0][2]


def test_a_reader_is_refused_by_the_server_and_written_down_with_role_and_request(
    acting_app: Flask, ledger: Ledger
) -> None:
    browser = Browser(acting_app, role=Role.READ, name="robin")
    answer = browser.post("/admin/act", X_Request_Id="r-17")

    assert answer.status_code == 403
    assert "needs the role NOTIFY_ADMIN" in text_of(answer)
    assert "robin" in text_of(answer)
    assert acting_app.extensions["done"] == 0
    with ledger.transaction() as connection:
        rows = connection.execute("SELECT operator, action, target, result, role, request_id FROM audit").fetchall()
    assert rows == [("robin", "denied", "POST /admin/act", "denied", "read", "r-17")]


def test_who_is_not_signed_in_any_more_is_told_that_nothing_was_changed(acting_app: Flask) -> None:
    answer = Browser(acting_app, role=None).post("/admin/act")
    assert answer.status_code == 401
    assert "Nothing was changed" in text_of(answer)
    assert acting_app.extensions["done"] == 0


def test_a_session_that_was_ended_elsewhere_changes_nothing_at_once_and_reads_no_more_soon(
    acting_app: Flask, ledger: Ledger
) -> None:
    browser = Browser(acting_app)
    with ledger.transaction() as connection:
        connection.execute("UPDATE operator_session SET ended_at = now()")
    assert browser.post("/admin/act").status_code == 401
    assert acting_app.extensions["done"] == 0
    assert browser.get(HOME).status_code == 302


def test_a_cookie_of_before_the_sign_out_opens_nothing(app: Flask, ledger: Ledger) -> None:
    browser = Browser(app)
    stolen = browser.cookies()
    assert browser.post(SIGN_OUT).location == "/admin/signed-out"
    assert browser.get(HOME).status_code == 302
    thief = app.test_client()
    thief.set_cookie("__Host-tidings", stolen, domain="localhost")
    with thief.session_transaction() as kept:
        assert kept["operator"]["name"] == "kim"
        kept["operator"]["looked"] -= 60
        kept.modified = True
    assert thief.get(HOME, headers={"Accept": "text/html"}).status_code == 302
    assert "sign out" in str(all_audit(ledger))


# --- cookies and headers -------------------------------------------------------------------------------------


def test_the_cookie_is_for_our_pages_over_tls_alone(app: Flask) -> None:
    browser = Browser(app)
    browser.looked_ago(60)
    cookie = browser.get(HOME).headers["Set-Cookie"]
    assert cookie.startswith("__Host-tidings=")
    assert {"Secure", "HttpOnly", "Path=/", "SameSite=Lax"} <= set(cookie.split("; "))
    assert "Domain" not in cookie


def test_on_this_machine_itself_the_cookie_goes_without_tls(make_app: MakeApp) -> None:
    browser = Browser(make_app(public_url="http://127.0.0.1:8000"))
    browser.looked_ago(60)
    cookie = browser.get(HOME).headers["Set-Cookie"]
    assert cookie.startswith("tidings=")
    assert "Secure" not in cookie


def test_a_cookie_that_was_changed_or_signed_elsewhere_is_nobodys(app: Flask, make_app: MakeApp) -> None:
    reader = Browser(app, role=Role.READ)
    packed, at, signature = reader.cookies().rsplit(".", 2)
    found = base64.urlsafe_b64decode(packed.lstrip(".") + "==")
    forged = json.loads(zlib.decompress(found) if packed.startswith(".") else found)
    forged["operator"]["role"] = "admin"
    body = base64.urlsafe_b64encode(json.dumps(forged).encode()).decode().rstrip("=")
    elsewhere = Browser(make_app(secret_key="b" * 40)).cookies()
    for cookie in (f"{body}.{at}.{signature}", elsewhere, "", "x"):
        client = app.test_client()
        client.set_cookie("__Host-tidings", cookie, domain="localhost")
        assert client.get(HOME, headers={"Accept": "text/html"}).status_code == 302


def test_every_answer_of_a_page_is_sealed(app: Flask) -> None:
    for browser in (Browser(app), Browser(app, role=None)):
        for path in (HOME, "/admin/no-such-page", "/admin/sign-in", "/inbox", "/admin/monitoring/queues"):
            headers = browser.get(path).headers
            assert "default-src 'none'" in headers["Content-Security-Policy"], path
            assert "frame-ancestors 'none'" in headers["Content-Security-Policy"], path
            assert "unsafe" not in headers["Content-Security-Policy"], path
            assert headers["Cache-Control"] == "no-store", path
            assert headers["X-Content-Type-Options"] == "nosniff", path
            assert headers["Referrer-Policy"] in {"same-origin", "no-referrer"}, path


def test_no_page_has_code_or_style_of_its_own_in_it(app: Flask) -> None:
    for path in (HOME, "/admin/monitoring/audit", "/admin/no-such-page", "/inbox"):
        text = Browser(app).get(path).text
        assert not re.search(r"<style|<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=", text), path


def test_while_the_ledger_is_away_a_reader_reads_on_and_nobody_changes_anything(make_app: MakeApp) -> None:
    app = make_app(database_url="postgres://nobody@127.0.0.1:1/nothing")

    @access.acts
    def act() -> str:
        return "done"

    @access.reads
    def read() -> str:
        return f"may act: {access.may_act()}; {access.why_not_act()}"

    app.add_url_rule("/admin/act", "act", act, methods=["POST"])
    app.add_url_rule("/admin/read", "read", read)
    browser = Browser(app)
    browser.looked_ago(60)
    assert browser.get("/admin/read").text.startswith("may act: False; The ledger does not answer")
    assert browser.post("/admin/act").status_code == 403
    browser.looked_ago(1900)
    answer = browser.get("/admin/read")
    assert answer.status_code == 503
    assert "cannot be reached" in text_of(answer)


def denied(ledger: Ledger) -> list[tuple[str, str, str]]:
    return [(row[0], row[2], row[5]) for row in all_audit(ledger) if row[1] == "denied"]


def all_audit(ledger: Ledger) -> list[tuple[str, str, str, str, str, str]]:
    with ledger.transaction() as connection:
        return connection.execute(
            "SELECT operator, action, target, result, role, reason FROM audit ORDER BY id"
        ).fetchall()  # type: ignore[return-value]

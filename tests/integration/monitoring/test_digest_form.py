"""A digest channel set up and changed in the pages' forms: the command's rules, and nothing of a secret shown again."""

import re
from collections.abc import Iterator
from html import unescape

import pytest

from shared.domain.digests import Severity
from shared.domain.roles import Role
from shared.jobs import QueueName
from shared.ledger import audit, digest_channels, notifications
from shared.ledger.db import Ledger
from shared.ledger.digest_channels import DigestChannel
from tests.integration.monitoring.conftest import MakeApp
from tests.integration.workers.inprocess import InProcess, make_settings
from tests.support.browser import Browser, text_of
from tests.support.digests import LOOPBACK, SECRET, finding, post, put, statuses
from tests.support.factories import make_tenant
from tests.support.ledger_rows import scalar
from tests.support.scripted_http import ScriptedHttp, answer, scripted_http

PATH = "/admin/monitoring/digests"
NEW, EDIT = f"{PATH}/channels/new", f"{PATH}/channels/ops/edit"


@pytest.fixture
def browser(make_app: MakeApp, redis_url: str, ledger: Ledger) -> Browser:
    with ledger.transaction() as connection:
        make_tenant(connection, "acme")
    return Browser(make_app(redis_url=redis_url, **LOOPBACK))


@pytest.fixture
def server() -> Iterator[ScriptedHttp]:
    with scripted_http() as server:
        server.always("/hook", answer(200, {"ok": True}))
        yield server


@pytest.fixture
def worker(ledger: Ledger, database_url: str, redis_url: str) -> Iterator[InProcess]:
    with InProcess(make_settings(database_url, redis_url, **LOOPBACK)) as worker:
        yield worker


def found(ledger: Ledger) -> DigestChannel:
    with ledger.autocommit() as connection:
        channel = digest_channels.find(connection, "ops")
    assert channel is not None
    return channel


def fields_of(page: str) -> dict[str, str]:
    """What the fields of the form hold, by name."""
    held = dict(re.findall(r'<input id="(\w+)"[^>]* value="([^"]*)"', page))
    chosen = re.findall(r'<select id="(\w+)".*?<option selected>([^<]*)</option>', page)
    return {name: unescape(value) for name, value in [*held.items(), *chosen]}


def test_a_channel_is_added_tried_and_changed(
    browser: Browser, server: ScriptedHttp, worker: InProcess, ledger: Ledger
) -> None:
    put(ledger, "there before")
    assert 'name="signing_secret"' in browser.get(f"{NEW}?type=webhook").text
    url = f"{server.url}/hook?key=secret-part"
    made = browser.post(
        f"{NEW}?type=webhook",
        {
            "name": "ops",
            "tenant": "acme",
            "url": url,
            "kinds": "cve, update",
            "min_severity": "high",
            "max_attempts": "3",
        },
    )
    assert "ops is set up. 1 that are there already are not told." in text_of(made)
    secret = re.search(r"whsec_[A-Za-z0-9+/]{43}=", unescape(made.text))
    assert secret is not None
    assert "data-at" not in made.text  # it stands without a snapshot, which may not be there just then
    assert "data-at" in browser.get(NEW).text

    link = re.search(r'href="([^"]+/channels/ops/test)"', made.text)
    assert link is not None
    asked = browser.post(link[1])
    worker.work_off(QueueName.OPS)
    assert 'HTTP 200: {"ok": true}' in unescape(browser.get(asked.location).text)
    (request,) = server.posts("/hook")
    assert request.headers["webhook-signature"].startswith("v1,")

    page = browser.get(PATH)
    assert "cve, update, high and above" in text_of(page)
    for hidden in (secret[0], "secret-part"):
        assert hidden not in page.text + browser.get(EDIT).text + browser.get("/admin/monitoring/queues").text
    assert fields_of(browser.get(EDIT).text) == {
        "kinds": "cve update", "min_severity": "high", "retry_base_delay_ms": "", "max_attempts": "3",
        "retention_days": "",
    }  # fmt: skip
    changed = browser.post(EDIT, {"kinds": "", "min_severity": "info", "retry_base_delay_ms": "60000"}, follow=True)
    assert "ops is changed" in text_of(changed)
    now = found(ledger)
    assert (now.kinds, now.min_severity, now.retry_base_delay_ms, now.max_delivery_attempts) == (
        None,
        "info",
        60_000,
        None,
    )
    post(ledger, "a")
    browser.post(f"{PATH}/run")
    worker.work_off(QueueName.OPS)
    assert statuses(ledger) == {"there before": "suppressed", "a": "sent"}  # by the address and secret of before
    assert server.posts("/hook")[1].headers["webhook-signature"]
    with ledger.autocommit() as connection:
        done = {entry.action: entry for entry in audit.newest(connection, limit=10)}
    assert (done["add channel"].operator, done["edit channel"].operator) == ("kim", "kim")
    assert done["edit channel"].result == "kinds, min_severity, retry_base_delay_ms, max_delivery_attempts"
    assert (done["edit channel"].detail or {})["retry_base_delay_ms"] == 60_000
    assert scalar(ledger, "SELECT count(*) FROM audit WHERE detail::text LIKE '%%secret-part%%'") == 0


def test_all_that_is_wrong_is_said_at_once_and_no_secret_comes_back(browser: Browser, ledger: Ledger) -> None:
    given = {
        "name": "Bad Name", "tenant": "nobody", "url": "http://example.com/secret-part",
        "auth_header": "Host: x-secret", "signing_secret": "whsec_short-secret", "kinds": "CVE",
        "min_severity": "loud", "max_attempts": "21", "retention_days": "none",
    }  # fmt: skip
    refused = browser.post(f"{NEW}?type=webhook", given)
    assert refused.status_code == 422
    words = text_of(refused)
    for said in (
        "Has 1 to 60 small letters", "Is none of those there are", "Must be https://", "Must not be a header that",
        "A kind has small letters", "Is one of info, low", "Is a whole number from 1 to 20", "number from 1 to 3,650",
    ):  # fmt: skip
        assert said in words, said
    assert "secret-part" not in refused.text
    assert "x-secret" not in refused.text
    assert "short-secret" not in refused.text
    assert fields_of(refused.text)["name"] == "Bad Name"
    assert scalar(ledger, "SELECT count(*) FROM digest_channel") == 0


def test_a_name_is_taken_once_and_a_refused_change_changes_nothing(browser: Browser, ledger: Ledger) -> None:
    given = {"name": "ops", "tenant": "acme", "url": "https://example.com/hook", "signing_secret": SECRET}
    assert browser.post(f"{NEW}?type=webhook", given).status_code == 303
    again = browser.post(f"{NEW}?type=webhook", given)
    assert again.status_code == 422
    assert "Ops is taken; where its signing secret was not seen, edit the channel" in text_of(again)
    before = found(ledger)
    refused = browser.post(EDIT, {"url": "https://10.0.0.1/x", "min_severity": "critical"})
    assert refused.status_code == 422
    assert "Is no public address" in text_of(refused)
    assert found(ledger) == before


def test_what_a_channel_may_go_without_is_removed_by_a_tick_that_says_what_it_does(
    browser: Browser, server: ScriptedHttp, worker: InProcess, ledger: Ledger
) -> None:
    given = {
        "name": "ops", "tenant": "acme", "url": f"{server.url}/hook", "signing_secret": SECRET,
        "auth_header": "Authorization: Bearer secret-part",
    }  # fmt: skip
    browser.post(f"{NEW}?type=webhook", given)
    assert "Remove the header: messages are sent without one from then on" in text_of(browser.get(EDIT))
    both = browser.post(EDIT, {"unset": "auth_header", "auth_header": "Authorization: Bearer other-part"})
    assert both.status_code == 422
    assert "given and removed at once" in text_of(both)
    for name in ("url", "signing_secret", "nonsense"):
        assert browser.post(EDIT, {"unset": name}).status_code == 422
    for changed in ({"min_severity": "low"}, {"unset": "auth_header"}):
        browser.post(EDIT, changed)
        browser.post(f"{PATH}/channels/ops/test")
        worker.work_off(QueueName.OPS)
    kept, gone = server.posts("/hook")
    assert kept.headers["authorization"] == "Bearer secret-part"
    assert "authorization" not in gone.headers
    assert gone.headers["webhook-signature"]
    with ledger.autocommit() as connection:
        results = [entry.result for entry in audit.newest(connection, limit=10) if entry.action == "edit channel"]
    assert results == ["no auth_header, min_severity", "min_severity"]


def test_addresses_of_people_are_shown_masked(browser: Browser, ledger: Ledger) -> None:
    given = {
        "name": "ops", "tenant": "acme", "to": "ada.lovelace@example.com\n\nbob@example.org",
        "from": "news@example.com", "tell_existing": "yes",
    }  # fmt: skip
    assert browser.post(f"{NEW}?type=email", given).status_code == 303
    assert found(ledger).config["to"] == ["ada.lovelace@example.com", "bob@example.org"]
    assert found(ledger).tells_existing
    for path in (PATH, EDIT, "/admin/monitoring/queues"):
        page = browser.get(path).text
        assert "ada.lovelace" not in page
        assert "a***@" in page
    browser.post(EDIT, {"min_severity": "low"})
    assert len(found(ledger).config["to"]) == 2
    refused = browser.post(EDIT, {"to": "ada.lovelace@example.com\nno address"})
    assert refused.status_code == 422
    assert "ada.lovelace" not in refused.text


def test_who_may_only_read_gets_no_form(make_app: MakeApp, browser: Browser, ledger: Ledger) -> None:
    given = {"name": "ops", "tenant": "acme", "url": "https://example.com/hook", "signing_secret": SECRET}
    browser.post(f"{NEW}?type=webhook", given)
    reader = Browser(make_app(), role=Role.READ, name="robin")
    page = reader.get(PATH).text
    assert NEW not in page
    assert EDIT not in page
    for path in (NEW, f"{NEW}?type=webhook", EDIT):
        assert reader.get(path).status_code == 403
        assert reader.post(path, given).status_code == 403
    assert scalar(ledger, "SELECT count(*) FROM audit WHERE result = 'denied' AND operator = 'robin'") == 6


def test_without_the_token_of_the_session_nothing_is_set_up(browser: Browser, ledger: Ledger) -> None:
    given = {"name": "ops", "tenant": "acme", "url": "https://example.com/hook", "csrf_token": "forged"}
    assert browser.post(f"{NEW}?type=slack", given).status_code == 403
    assert scalar(ledger, "SELECT count(*) FROM digest_channel") == 0


@pytest.mark.parametrize("path", [f"{NEW}?type=pigeon", f"{PATH}/channels/none/edit", f"{PATH}/channels/%00/edit"])
def test_a_form_for_nothing_is_not_there(browser: Browser, path: str) -> None:
    assert browser.post(path, {"name": "x"}).status_code == 404


def test_findings_that_a_wider_filter_lets_in_are_told_where_that_is_ticked(browser: Browser, ledger: Ledger) -> None:
    given = {"name": "ops", "tenant": "acme", "to": "ada@example.com", "min_severity": "high"}
    browser.post(f"{NEW}?type=email", given)
    put(ledger, finding("low", severity=Severity.LOW), finding("medium", severity=Severity.MEDIUM))
    assert "findings that a wider one lets in count as known" in text_of(browser.get(EDIT))
    changed = browser.post(EDIT, {"min_severity": "medium"})
    assert "1 that are there already are not told" in text_of(browser.get(changed.headers["Location"]))
    browser.post(EDIT, {"min_severity": "low", "tell_existing": "yes"})
    with ledger.transaction() as connection:
        notifications.detect(connection, found(ledger).id)
    assert statuses(ledger) == {"medium": "suppressed", "low": "pending"}

"""What is sent compressed, and what is not."""

import gzip
import json
import re
from typing import Any

import pytest

from shared.domain.requeue import FailureFilter
from shared.ledger.db import Ledger
from tests.support.browser import Browser
from tests.support.factories import make_send
from tests.support.failing import make_failures
from tests.support.requeuing import plan

PACKED = {"Accept-Encoding": "br, gzip"}


def get(browser: Browser, path: str, headers: Any = PACKED) -> Any:
    return browser.client.get(path, headers={"Accept": "text/html", **headers})


@pytest.fixture
def script(browser: Browser) -> str:
    """The address of a page's script."""
    found = re.search(r'src="(/static/live\.js\?v=\w+)"', get(browser, "/admin/monitoring", {}).text)
    assert found is not None
    return found.group(1)


def test_a_static_file_is_sent_packed_to_who_takes_it_and_kept_for_good(browser: Browser, script: str) -> None:
    packed, plain = get(browser, script), get(browser, script, {"Accept-Encoding": "gzip;q=0, identity"})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert "Content-Encoding" not in plain.headers
    assert gzip.decompress(packed.data) == plain.data
    assert len(packed.data) < len(plain.data) / 2
    for answer in (packed, plain):
        assert answer.headers["Vary"] == "Accept-Encoding"
        assert answer.headers["Content-Type"] == "text/javascript; charset=utf-8"
        assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"
        assert int(answer.headers["Content-Length"]) == len(answer.data)


def test_a_static_file_that_a_browser_has_is_not_sent_again(browser: Browser, script: str) -> None:
    packed, plain = get(browser, script), get(browser, script, {})
    assert packed.headers["ETag"] != plain.headers["ETag"]
    assert get(browser, script, {**PACKED, "If-None-Match": packed.headers["ETag"]}).status_code == 304
    assert get(browser, script, {"If-None-Match": packed.headers["ETag"]}).status_code == 200


def test_an_address_that_does_not_name_these_contents_is_asked_for_each_time(browser: Browser, script: str) -> None:
    bare = script.partition("?")[0]
    for path in (bare, f"{bare}?v=0123456789"):  # that of another version, which runs beside this one for a while
        answer = get(browser, path)
        assert answer.status_code == 200
        assert answer.headers["Cache-Control"] == "no-cache"


@pytest.mark.parametrize("name", ["nothing.js", "../app.py", "vendor", "%2e%2e/app.py"])
def test_nothing_else_is_served_as_a_static_file(browser: Browser, name: str) -> None:
    assert get(browser, f"/static/{name}").status_code == 404


def test_panels_are_packed_whatever_is_asked_for_where_no_token_is_in_them(browser: Browser, ledger: Ledger) -> None:
    for page, panel in (("overview", "last_hour"), ("failures", "groups"), ("system", "queues")):
        packed = get(browser, f"/admin/monitoring/panels?page={page}&have={panel}:0")
        assert packed.headers["Content-Encoding"] == "gzip"
        assert panel in json.loads(gzip.decompress(packed.data))["panels"]
    make_failures(ledger, count=1)
    operation = plan(ledger, FailureFilter(), undo_s=600)
    answer = get(browser, f"/admin/monitoring/panels?page=operation&id={operation.id}&have=operation:0")
    assert "Content-Encoding" not in answer.headers
    assert "csrf_token" in answer.get_json()["panels"]["operation"]["html"]


def test_a_page_is_packed_unless_its_request_may_be_in_it(browser: Browser, ledger: Ledger) -> None:
    packed = get(browser, "/admin/monitoring/sends")
    assert packed.headers["Content-Encoding"] == "gzip"
    assert "Accept-Encoding" in packed.headers["Vary"]
    assert "No sends yet" in gzip.decompress(packed.data).decode()
    path = f"/admin/monitoring/sends/{make_send(ledger).id}"
    assert get(browser, path).headers["Content-Encoding"] == "gzip"
    answer = get(browser, f"{path}?show=failed")
    assert answer.status_code == 200
    assert "Content-Encoding" not in answer.headers
    assert "Content-Encoding" not in get(browser, "/admin/monitoring/no-such-page").headers

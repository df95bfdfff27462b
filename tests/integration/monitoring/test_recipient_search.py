"""Finding a recipient by the address: whatever became of what was sent there, and never an address on the way."""

import re

import pytest

from shared.domain.ids import delivery_id
from shared.domain.states import Channel, SendStatus
from shared.ledger import recipient_search
from shared.ledger.db import Ledger
from tests.support.browser import Browser, text_of
from tests.support.factories import make_send
from tests.support.failing import fail_again, make_failures
from tests.support.ledger_rows import put_rows
from tests.support.requeuing import finish, of, plan

FIND = "/admin/monitoring/failures/find"


def listed(page: str) -> list[str]:
    """The deliveries that the page names, in its order."""
    return re.findall(r'<th scope="row"><a href="/admin/monitoring/failures/([^"]+)"', page)


@pytest.mark.parametrize(
    ("stored", "typed", "channel"),
    [
        ("Jane.Doe@example.com", " jane.doe@EXAMPLE.com ", Channel.EMAIL),
        ("jane@xn--bcher-kva.example", "jane@bücher.example", Channel.EMAIL),
        ("+16045550123", "+1 (604) 555-0123", Channel.SMS),
    ],
)
@pytest.mark.parametrize("has_failed", [True, False])
def test_a_recipient_is_found_and_no_address_is_in_where_it_leads(
    browser: Browser,
    ledger: Ledger,
    stored: str,
    typed: str,
    channel: Channel,
    has_failed: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    send = (make_failures if has_failed else make_send)(ledger, addresses=[stored], channel=channel)
    make_failures(ledger, addresses=["other@example.com"])
    answer = browser.post(FIND, {"address": typed})
    assert answer.status_code == 303
    assert answer.location == f"/admin/monitoring/recipients/{delivery_id(send.id, 1)}"
    page = browser.get(answer.location).text
    assert listed(page) == [delivery_id(send.id, 1)]
    assert ("What failed" in page) is has_failed
    assert stored.lower() not in page.lower()
    assert stored.lower() not in caplog.text.lower()


def test_everything_to_a_recipient_is_shown_the_newest_first_whatever_became_of_it(
    browser: Browser, ledger: Ledger
) -> None:
    cured = make_failures(ledger, addresses=["ada@example.com", "jane@example.com"])
    plan(ledger, of(cured))
    finish(ledger)
    put_rows(ledger, cured.id, [2], "sent")
    fail_again(ledger, cured.id, [1])
    addresses = ["jane@example.com", "bob@example.com", "JANE@example.com", "jane@example.com.au"]
    send = make_send(ledger, addresses=addresses, status=SendStatus.SENDING)
    put_rows(ledger, send.id, [1], "retrying", due_in="5 minutes 30 seconds")
    put_rows(ledger, send.id, [3], "suppressed")
    page = browser.post(FIND, {"address": "jane@example.com"}, follow=True)
    assert listed(page.text) == [delivery_id(send.id, 3), delivery_id(send.id, 1), delivery_id(cured.id, 2)]
    said = text_of(page)
    assert re.search("suppressed .*retrying .*next in 5 min.*sent .*requeued 1×", said)
    assert "Looked through all deliveries that are kept: 6 ." in said
    assert "What failed" not in said
    beside = browser.get(f"/admin/monitoring/failures/{cured.id}.2").text
    assert f'href="/admin/monitoring/recipients/{cured.id}.2"' in beside


def test_many_are_paged(browser: Browser, ledger: Ledger) -> None:
    send = make_send(ledger, addresses=["jane@example.com"] * 120)
    path, seen = f"/admin/monitoring/recipients/{send.id}.7", []
    while path:
        page = browser.get(path).text
        seen += listed(page)
        older = re.search(r'rel="next" href="([^"]+)"', page)
        path = older[1] if older else ""
    assert seen == [delivery_id(send.id, row_no) for row_no in range(120, 0, -1)]


def test_who_was_never_written_to_is_said_and_what_is_no_address_too(browser: Browser, ledger: Ledger) -> None:
    make_send(ledger, count=3)
    nobody = browser.post(FIND, {"address": "jane.doe@example.com"}, follow=True)
    assert "Nothing that is kept was sent to this address, or is to be." in nobody.text
    broken = browser.post(FIND, {"address": "jane.doe@"}, follow=True)
    assert "no address that a message can go to" in broken.text
    national = browser.post(FIND, {"address": "030 1234567"}, follow=True)
    assert "has no country code; write it as +, country code, number<" in national.text, "no region can be set here"
    assert "jane.doe" not in nobody.text + broken.text
    assert browser.get(FIND).location == "/admin/monitoring/failures"
    gone = browser.get("/admin/monitoring/recipients/01a2163a-6f0e-7b32-8c1d-0a5b1c2d3e4f.1")
    assert gone.status_code == 404


def test_a_look_ends_with_its_time_and_another_goes_on_from_there(ledger: Ledger) -> None:
    old = make_send(ledger, addresses=["jane@example.com", *(f"p{n}@example.com" for n in range(20))])
    new = make_send(ledger, addresses=[*(f"p{n}@example.com" for n in range(20)), "jane@example.com"])
    with ledger.transaction() as connection:
        (accepted,) = connection.execute("SELECT created_at FROM send WHERE id = %s", [new.id]).fetchone() or ()

    def look(before: recipient_search.Key | None, *, most: int, seconds: float) -> recipient_search.Looked:
        return recipient_search.look(
            ledger.transaction, Channel.EMAIL, "jane@example.com", most=most, seconds=seconds, before=before, chunk=10
        )

    first = look(None, most=5, seconds=0)
    assert first == recipient_search.Looked([(new.id, 21)], 10, accepted, (new.id, 12))
    lent = ledger.pool.get_stats()["requests_num"]
    rest = look(first.last, most=5, seconds=60)
    assert (rest.keys, rest.count, rest.last) == ([(old.id, 1)], 32, None)
    assert ledger.pool.get_stats()["requests_num"] - lent == 4, "a connection is lent for one chunk"
    assert look(None, most=1, seconds=60).last == (new.id, 12)
    assert look((old.id, 1), most=1, seconds=60) == recipient_search.Looked([], 0, None, None)

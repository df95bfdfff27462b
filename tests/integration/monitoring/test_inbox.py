import re
from collections.abc import Callable
from uuid import UUID, uuid4

import pytest
from flask import Flask

from admin.monitoring import inbox
from shared.domain.roles import Role
from shared.domain.states import Lane, SendStatus
from shared.ledger import sandbox
from shared.ledger.db import Ledger
from tests.support.browser import Browser
from tests.support.factories import make_send

HTML = '<p style="color:teal">Hello <b>Ada</b></p><script>document.title = "ran"</script>'

Put = Callable[..., int]


@pytest.fixture
def put(ledger: Ledger) -> Put:
    """Put a message into the sandbox and give its id."""

    def put(**given: str | None) -> int:
        columns: dict[str, object] = {
            "key": uuid4(),
            "channel": "email",
            "address": "ada.lovelace@example.com",
            "sender": "City <noreply@example.com>",
            "reply_to": None,
            "subject": "Your appointment",
            "text": "Hello Ada",
            "html": None,
            **given,
        }
        with ledger.transaction() as connection:
            row = connection.execute(
                "INSERT INTO sandbox_message (key, channel, address, sender, reply_to, subject, text, html) VALUES"
                " (%(key)s, %(channel)s, %(address)s, %(sender)s, %(reply_to)s, %(subject)s, %(text)s, %(html)s)"
                " RETURNING id",
                columns,
            ).fetchone()
        assert row is not None
        return int(row[0])

    return put


def test_nobody_sees_the_inbox_who_is_not_signed_in(app: Flask, put: Put) -> None:
    message = put(html=HTML)
    stranger = Browser(app, role=None)

    for path in ("/inbox", f"/inbox/{message}", f"/inbox/{message}/html"):
        answer = stranger.get(path)
        assert answer.status_code == 302, path
        assert answer.location.startswith("/admin/sign-in?")
        assert "appointment" not in stranger.get(path, follow=True).text


def test_an_empty_inbox_says_how_to_fill_it(browser: Browser) -> None:
    text = browser.get("/inbox").text

    assert "No messages yet." in text
    assert "{{ name }}" in text
    assert "Test bench" in text


def test_the_list_shows_the_newest_first_with_masked_addresses(browser: Browser, put: Put) -> None:
    put(subject="earlier")
    put(channel="sms", address="+16045550123", subject=None, text="later, for jane.doe@example.com")
    text = browser.get("/inbox").text

    assert text.index("later") < text.index("earlier")
    assert "a***@e***.com" in text
    assert "+1***23" in text
    assert "lovelace" not in text
    assert "jane.doe" not in text


def test_older_messages_follow_page_by_page_each_once(browser: Browser, put: Put) -> None:
    put_ids = [put(subject=f"n{number}") for number in range(inbox.PAGE_SIZE * 2 + 1)]
    seen: list[int] = []
    path: str | None = "/inbox"
    while path:
        text = browser.get(path).text
        seen += [int(found) for found in re.findall(r'href="/inbox/(\d+)"', text)]
        following = re.search(r'rel="next" href="([^"]+)"', text)
        path = following[1] if following else None

    assert seen == sorted(put_ids, reverse=True)


def test_an_email_shows_what_its_recipient_sees(browser: Browser, put: Put) -> None:
    message = put(subject="<b>Hi</b> & bye", text="line 1\nline 2 <x>", reply_to="help@example.com", html=HTML)
    text = browser.get(f"/inbox/{message}").text

    assert "ada.lovelace@example.com" in text
    assert "City &lt;noreply@example.com&gt;" in text
    assert "help@example.com" in text
    assert "&lt;b&gt;Hi&lt;/b&gt; &amp; bye" in text
    assert "line 1\nline 2 &lt;x&gt;" in text
    assert 'sandbox=""' in text
    assert "document.title" not in text


def test_the_html_part_is_a_document_that_may_draw_and_do_nothing_else(browser: Browser, put: Put) -> None:
    answer = browser.get(f"/inbox/{put(html=HTML)}/html")
    policy = answer.headers["Content-Security-Policy"].split("; ")

    assert answer.text == HTML
    assert {"sandbox", "default-src 'none'", "form-action 'none'", "frame-ancestors 'self'"} <= set(policy)
    assert not [rule for rule in policy if rule.startswith("script-src") or "http" in rule]
    assert answer.headers["Referrer-Policy"] == "same-origin"
    assert browser.get(f"/inbox/{put(html=None)}/html").status_code == 404


def test_who_may_only_read_sees_letters_masked_and_no_html_part(app: Flask, put: Put) -> None:
    reader = Browser(app, role=Role.READ)
    message = put(
        subject="For ada.lovelace@example.com",
        text="Call 604 555 0123 or write to bob@example.com",
        reply_to="help@example.com",
        html="<p>ada.lovelace@example.com</p>",
    )
    shown = reader.get(f"/inbox/{message}").text
    assert "a***@e***.com" in shown
    assert "the HTML part is kept back: to see all of it takes the role NOTIFY_ADMIN" in shown
    assert not [word for word in ("lovelace", "bob@", "help@", "0123", "iframe") if word in shown]
    refused = reader.get(f"/inbox/{message}/html")
    assert refused.status_code == 403
    assert "lovelace" not in refused.text

    text = reader.get(f"/inbox/{put(channel='sms', address='+16045550123', subject=None, text='Hello')}").text
    assert "+1***23" in text
    assert "kept back" not in text


def test_a_text_message_shows_its_segments(browser: Browser, put: Put) -> None:
    one = put(channel="sms", address="+16045550123", sender="+16045550100", subject=None, text="See you at 9")
    two = put(channel="sms", address="+16045550123", sender=None, subject=None, text="ў" * 71)

    assert "1 segment ·" in browser.get(f"/inbox/{one}").text
    assert "2 segments ·" in browser.get(f"/inbox/{two}").text
    assert "UCS-2" in browser.get(f"/inbox/{two}").text


@pytest.mark.parametrize("path", ["/inbox/999999", f"/inbox/{2**70}", "/inbox/x", f"/inbox/{2**70}/html"])
def test_a_message_that_is_not_there_is_a_404(browser: Browser, path: str) -> None:
    assert browser.get(path).status_code == 404


@pytest.mark.parametrize("before", ["0", "-5", "x", str(2**70), "%00"])
def test_a_bad_place_in_the_list_is_no_error(browser: Browser, put: Put, before: str) -> None:
    put()
    assert browser.get(f"/inbox?before={before}").status_code == 200


def test_no_page_loads_anything_from_elsewhere_or_may_be_framed(browser: Browser, put: Put) -> None:
    for path in ("/inbox", f"/inbox/{put(html=HTML)}"):
        answer = browser.get(path)
        assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
        assert answer.headers["Cache-Control"] == "no-store"
        assert not re.search(r'(?:src|href)="(?:https?:)?//', answer.text)


def test_the_list_shows_how_a_letter_begins_so_that_one_of_many_is_found(browser: Browser, put: Put) -> None:
    put(text="Dear Ada, your number is 17. Write to bob@example.com")
    page = browser.get("/inbox").get_data(as_text=True)

    assert "Dear Ada, your number is 17." in page
    assert "bob@example.com" not in page


def test_an_international_domain_is_shown_as_people_read_it_beside_the_form_that_is_sent(
    browser: Browser, put: Put
) -> None:
    number = put(address="ada@xn--mnchen-3ya.example")

    assert "a***@m***.example" in browser.get("/inbox").get_data(as_text=True)
    page = browser.get(f"/inbox/{number}").get_data(as_text=True)
    assert "<dd>ada@münchen.example (ada@xn--mnchen-3ya.example)</dd>" in page


def test_the_tenants_reference_stands_beside_each_message_until_its_delivery_is_forgotten(
    browser: Browser, ledger: Ledger
) -> None:
    send = make_send(ledger, count=2, lane=Lane.SINGLE, status=SendStatus.SENDING)
    with ledger.autocommit() as connection:
        connection.execute("UPDATE delivery SET reference = 'case-' || row_no || ' of ada@example.com'")
        sandbox.keep(connection, [kept(send.id, 1), kept(send.id, 2), kept(None, None)])
    page = browser.get("/inbox").text
    assert [f"case-{n} of " in page for n in (1, 2)] == [True, True]
    assert "ada@example.com" not in page
    assert "case-1 of ada@example.com" in browser.get("/inbox/1").text
    with ledger.autocommit() as connection:
        connection.execute("DELETE FROM delivery")
    assert "case-1" not in browser.get("/inbox").text
    assert browser.get("/inbox/1").status_code == 200


def kept(send_id: UUID | None, row_no: int | None) -> sandbox.SandboxMessage:
    return sandbox.SandboxMessage(
        uuid4(), "email", "ada@example.com", None, None, "Hello", "Dear Ada", None, send_id, row_no
    )

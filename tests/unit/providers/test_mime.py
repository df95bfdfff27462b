"""E-mail bytes as a strict reader sees them."""

import email
import email.header
import email.message
import email.policy
from datetime import UTC, datetime
from uuid import UUID

import pytest

from workers.providers.mime import UnsendableAddressError, dot_stuffed, envelope_of
from workers.providers.protocol import EmailMessage

WHEN = datetime(2026, 11, 30, 15, 42, 7, tzinfo=UTC)
KEY = UUID("6f1c7f0a-58a3-5c1e-9d1f-0a5b8e6f7a10")


def message(
    *,
    to: str = "person@example.com",
    sender: str = "Desk <desk@example.com>",
    reply_to: str | None = None,
    subject: str = "Hello",
    text: str | None = "Hello there",
    html: str | None = None,
) -> EmailMessage:
    return EmailMessage(
        KEY, to, sender, reply_to, subject, text, html, WHEN, WHEN, "0190a1b2-0000-7000-8000-000000000001.1"
    )


def wire(made: EmailMessage) -> bytes:
    """Build the bytes and hold them to what every relay may demand."""
    content = envelope_of(made).content
    assert content.endswith(b"\r\n")
    assert b"\r" not in content.replace(b"\r\n", b"")
    assert b"\n" not in content.replace(b"\r\n", b"")
    assert max(len(line) for line in content.split(b"\r\n")) <= 998
    assert content.isascii() or envelope_of(made).needs_smtputf8
    return content


def parsed(made: EmailMessage) -> email.message.EmailMessage:
    return email.message_from_bytes(wire(made), policy=email.policy.default)


def body_of(part: email.message.MIMEPart) -> str:
    payload = part.get_payload(decode=True)
    assert isinstance(payload, bytes)
    return payload.decode().replace("\r\n", "\n")


HEADERS = ["From", "To", "Subject", "Date", "Message-ID", "MIME-Version", "Content-Type", "Content-Transfer-Encoding"]


def test_a_message_has_exactly_the_headers_it_needs() -> None:
    made = parsed(message())
    assert made.keys() == HEADERS
    assert made["Date"] == "Mon, 30 Nov 2026 15:42:07 +0000"
    assert made["Message-ID"] == f"<{KEY}@example.com>"
    assert made["From"].addresses[0].display_name == "Desk"


def test_the_message_id_can_have_a_domain_of_its_own_and_is_the_same_every_time() -> None:
    first, second = (envelope_of(message(), message_id_domain="mail.example.org") for _ in range(2))
    assert first == second
    assert f"Message-ID: <{KEY}@mail.example.org>".encode() in first.content


@pytest.mark.parametrize(
    "value",
    [
        "Hi\r\nBcc: mole@example.net",
        "Hi\n\nBcc: mole@example.net",
        "Hi\rBcc: mole@example.net",
        "Hi\n",
        "Ref 17 =?utf-8?q?=0D=0A?=Bcc: mole@example.net",
        "=?utf-8?b?DQpCY2M6IG1vbGVAZXhhbXBsZS5uZXQ=?=",
        "Hi\u2028Bcc: mole@example.net",
        "Hi\u0085Bcc: mole@example.net",
        "Hi\x00Bcc: mole@example.net",
        "Été\r\nBcc: mole@example.net",
    ],
)
def test_no_value_adds_a_header_or_ends_them(value: str) -> None:
    for made in (
        message(subject=value),
        message(sender=f"{value} <desk@example.com>"),
        message(reply_to=f"{value} <desk@example.com>"),
    ):
        read = parsed(made)
        assert sorted(set(read.keys())) == sorted({*HEADERS, *(["Reply-To"] if made.reply_to else [])})
        assert len(read.keys()) == len(set(read.keys()))
        assert body_of(read) == "Hello there\n"


@pytest.mark.parametrize(
    "subject",
    [
        "Hello",
        "",
        "Été à Québec",
        "日本語" * 100,
        "😀" * 200,
        "x" * 1_200,
        "word " * 240 + "end",
        "two  spaces and   three",
        "literal =?utf-8?q?hi?= stays as written",
        'a: b; c, <d> "e" (f)',
    ],
)
def test_a_subject_reads_back_as_it_was(subject: str) -> None:
    assert parsed(message(subject=subject))["Subject"] == subject


@pytest.mark.parametrize("name", ["Desk", "O'Brien, Pat", 'Pat "P" Lee', "Jörg", "名前", "x=?y", "back\\slash"])
def test_a_display_name_reads_back_as_it_was(name: str) -> None:
    (address,) = parsed(message(sender=f"{name} <desk@example.com>"))["From"].addresses
    assert (address.display_name, address.addr_spec) == (name, "desk@example.com")


def test_a_long_display_name_is_split_into_words_that_belong_together() -> None:
    raw = wire(message(sender=f"{'ä' * 300} <desk@example.com>")).partition(b"\r\nTo: ")[0].decode("ascii")
    shown = str(email.header.make_header(email.header.decode_header(raw.removeprefix("From: "))))
    assert "".join(shown.split()) == f"{'ä' * 300}<desk@example.com>"


TEXTS = [
    "Hello",
    "",
    ".",
    "..\n.\n.leading dot\n",
    "no newline at the end",
    "newline at the end\n",
    "\n\nblank lines first",
    "Été\n" * 50,
    "日本語のテキスト" * 400,
    "a" * 5_000,
    "é" * 5_000,
    "trailing space \nand tab\t\nend",
    "equals = signs == and =20",
    "tab\tand control \x01",
    "From the start of a line",
    "--=_6f1c7f0a58a35c1e9d1f0a5b8e6f7a10\n",
    "x" * 2_000_000,
]


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_both_parts_read_back_as_they_were(text: str) -> None:
    read = parsed(message(text=text, html=f"<p>{text}</p>"))
    assert read.get_content_type() == "multipart/alternative"
    plain, html = read.iter_parts()
    assert (plain.get_content_type(), html.get_content_type()) == ("text/plain", "text/html")
    assert body_of(plain) == text
    assert body_of(html) == f"<p>{text}</p>"


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_a_single_part_reads_back_with_a_line_end_at_its_end(text: str) -> None:
    assert body_of(parsed(message(text=text))) in {text, text + "\n"}


def test_all_kinds_of_line_ends_become_crlf() -> None:
    assert body_of(parsed(message(text="a\rb\nc\r\nd"))) == "a\nb\nc\nd\n"


def test_a_message_of_html_alone_has_one_part() -> None:
    assert parsed(message(text=None, html="<p>x</p>")).get_content_type() == "text/html"


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("plain", "7bit"),
        ("Long words éé " * 20, "quoted-printable"),
        ("日本語", "base64"),
        ("a" * 1_000, "quoted-printable"),
    ],
)
def test_the_encoding_suits_the_content(text: str, encoding: str) -> None:
    assert parsed(message(text=text))["Content-Transfer-Encoding"] == encoding


def test_dots_at_line_starts_are_doubled_and_nothing_else_changes() -> None:
    assert dot_stuffed(b".\r\n..a\r\nb.\r\n.c\r\n") == b"..\r\n...a\r\nb.\r\n..c\r\n"


def test_a_domain_outside_ascii_is_sent_in_its_ascii_form() -> None:
    made = envelope_of(message(to="person@bücher.example", sender="Büro <desk@bücher.example>"))
    assert (made.sender, made.recipient) == ("desk@xn--bcher-kva.example", "person@xn--bcher-kva.example")
    assert not made.needs_smtputf8
    assert f"<{KEY}@xn--bcher-kva.example>".encode() in made.content


def test_a_local_part_outside_ascii_asks_for_smtputf8() -> None:
    assert envelope_of(message(to="jörg@example.com")).needs_smtputf8


@pytest.mark.parametrize(
    "address",
    [
        "",
        "person",
        "@example.com",
        "person@",
        "a b@example.com",
        "a@b@example.com",
        "a@example.com, b@example.com",
        "a@example.com>\r\nRCPT TO:<b@example.com",
        "a@example.com\n",
        "a\x00@example.com",
        "a@exam\u2028ple.com",
        "a@" + "x" * 256,
        "a" * 65 + "@example.com",
        "a@-ü-.example",
    ],
)
def test_an_address_that_is_none_is_refused_without_being_repeated(address: str) -> None:
    for made, whose in (
        (message(to=address), "recipient"),
        (message(sender=address), "sender"),
        *([] if ">" in address else [(message(sender=f"Desk <{address}>"), "sender")]),
    ):
        with pytest.raises(UnsendableAddressError) as refused:
            envelope_of(made)
        assert str(refused.value) == whose

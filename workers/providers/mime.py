"""
An e-mail message as RFC 5322 bytes: CRLF only, lines of at most 998 octets, headers nobody can add to.

Written by hand because `email.message` of Python 3.11 can be made to emit a header of the writer's choice by
an encoded word that decodes to CRLF (python/cpython#121650), and for speed.

- Message-ID is <key@domain>: the same over all retries, another after a person's requeue. Date is when the
  send was accepted, in UTC: retries are the same message.
- A part goes as 7bit where it is plain ASCII in short lines, else as quoted-printable, or as base64 where
  that is shorter by a fifth or more (text mostly outside ASCII). Never 8bit: whether the next relay takes
  it is not known when the message is made.
- A part's text is kept except for its line ends (any of CRLF, CR, LF becomes CRLF); the message ends in CRLF.
- Control characters in a header value become spaces; "=?" is encoded, so that it is shown as written.

Source: RFC 5322 §2.1.1, §3.6; RFC 2045 §6; RFC 2047 §2, §5; RFC 2046 §5.1.4; RFC 6532 for UTF-8 local parts.
"""

import base64
import binascii
import email.utils
import re
from collections.abc import Iterator
from datetime import UTC
from typing import NamedTuple

import idna

from workers.providers.protocol import EmailMessage, Message

#: octets of a header line aimed at, and of a body line sent as it is (RFC 5322 §2.1.1: 78 and 998).
_HEADER_LINE = 76
_BODY_LINE = 990
#: octets of UTF-8 in one encoded word, so that "Subject: =?utf-8?b?…?=" stays within 76 (RFC 2047 §2).
_WORD_OCTETS = 39

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_LINE_END = re.compile(r"\r\n|\r|\n")
_NOT_7BIT = re.compile(r"[^\t\n\r\x20-\x7e]")
_NAMED = re.compile(r"\s*(.*?)\s*<([^<>]*)>\s*", re.DOTALL)
#: what may stand in an address on an envelope line or inside <>; quoting is not supported.
_ADDRESS = re.compile(
    r"[^\s<>()\[\]\\,;:\"@\x00-\x20\x7f-\x9f\u2028\u2029]{1,64}@[^\s<>()\\,;:\"@\x00-\x20\x7f]{1,255}"
)
_PLAIN_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~ -]{1,60}")


class UnsendableAddressError(ValueError):
    """An address that must not be put on the wire; its text does not contain the address."""


class Envelope(NamedTuple):
    """A message ready for a relay. `needs_smtputf8`: an address has a local part outside ASCII."""

    sender: str
    recipient: str
    content: bytes
    needs_smtputf8: bool


def message_id_of(message: Message, domain: str | None) -> str:
    """
    Give the Message-ID under which a message goes; without a domain that of its sender.

    Raises: UnsendableAddressError.
    """
    domain = domain or _address(message.sender or "", "sender")[1].rpartition("@")[2]
    return f"<{message.key}@{_ascii_domain(domain, 'sender')}>"


def envelope_of(message: EmailMessage, *, message_id_domain: str | None = None) -> Envelope:
    """
    Build the message and its envelope.

    `message_id_domain` falls back to the sender's domain.

    Raises: UnsendableAddressError, "recipient" or "sender" as its text, before anything was sent.
    """
    name, sender = _address(message.sender, "sender")
    _, recipient = _address(message.to, "recipient")
    domain = message_id_domain or sender.rpartition("@")[2]
    headers = [
        b"From: " + _mailbox(name, sender),
        b"To: " + _mailbox("", recipient),
        *([b"Reply-To: " + _mailbox(*_address(message.reply_to, "sender"))] if message.reply_to else []),
        _subject(message.subject),
        b"Date: " + email.utils.format_datetime(message.created_at.astimezone(UTC)).encode("ascii"),
        f"Message-ID: {message_id_of(message, domain)}".encode("ascii"),
        b"MIME-Version: 1.0",
    ]
    content = b"\r\n".join(headers) + b"\r\n" + _body(message)
    return Envelope(sender, recipient, content, not (sender.isascii() and recipient.isascii()))


def dot_stuffed(content: bytes) -> bytes:
    """Prepare content for DATA: a dot before each line that begins with one (RFC 5321 §4.5.2)."""
    if content.startswith(b"."):
        content = b"." + content
    return content.replace(b"\r\n.", b"\r\n..")


def _body(message: EmailMessage) -> bytes:
    parts = [
        _part(kind, text) for kind, text in (("plain", message.text), ("html", message.html)) if text is not None
    ] or [_part("plain", "")]
    if len(parts) == 1:
        part = parts[0]
        return part if part.endswith(b"\r\n") else part + b"\r\n"
    boundary = f"=_{message.key.hex}".encode("ascii")
    while any(boundary in part for part in parts):
        boundary += b"_"
    head = b'Content-Type: multipart/alternative; boundary="' + boundary + b'"\r\n\r\n'
    return head + b"".join(b"--%b\r\n%b\r\n" % (boundary, part) for part in parts) + b"--" + boundary + b"--\r\n"


def _part(kind: str, text: str) -> bytes:
    text = _LINE_END.sub("\r\n", text)
    head = f'Content-Type: text/{kind}; charset="utf-8"\r\nContent-Transfer-Encoding: '.encode("ascii")
    if not _NOT_7BIT.search(text) and all(len(line) <= _BODY_LINE for line in text.split("\r\n")):
        return head + b"7bit\r\n\r\n" + text.encode("ascii")
    raw = text.encode("utf-8", "replace")
    # b2a_qp breaks lines by a bare LF where the text has no CRLF to learn from.
    quoted = binascii.b2a_qp(raw, istext=True).replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    encoded = base64.encodebytes(raw).rstrip(b"\n").replace(b"\n", b"\r\n")
    if len(quoted) * 4 <= len(encoded) * 5:
        return head + b"quoted-printable\r\n\r\n" + quoted
    return head + b"base64\r\n\r\n" + encoded


def _subject(value: str) -> bytes:
    value = _CONTROL.sub(" ", value).strip()
    if value.isascii() and "=?" not in value:
        lines = list(_folded("Subject: ", value))
        if all(len(line) <= _HEADER_LINE for line in lines):
            return "\r\n".join(lines).encode("ascii")
    return b"Subject: " + _encoded_words(value)


def _folded(name: str, value: str) -> Iterator[str]:
    """Break before spaces; a word longer than a line comes out as a line that is too long."""
    line = name
    for piece in re.findall(r" *[^ ]+", value):
        if len(line) + len(piece) > _HEADER_LINE and line != name:
            yield line
            line = ""
        line += piece
    yield line


def _encoded_words(value: str) -> bytes:
    """Encode as words of UTF-8 in base64, each ending between characters, one per line."""
    words = []
    chunk = b""
    for character in value:
        octets = character.encode("utf-8", "replace")
        if len(chunk) + len(octets) > _WORD_OCTETS:
            words.append(chunk)
            chunk = b""
        chunk += octets
    words.append(chunk)
    return b"\r\n ".join(b"=?utf-8?b?%b?=" % base64.b64encode(word) for word in words)


def _mailbox(name: str, address: str) -> bytes:
    if not name:
        return address.encode()
    is_plain = _PLAIN_NAME.fullmatch(name) and "=?" not in name
    shown = f'"{name}"'.encode("ascii") if is_plain else _encoded_words(name)
    return shown + b"\r\n <" + address.encode() + b">"


def _address(value: str, whose: str) -> tuple[str, str]:
    """Split "Name <address>" and make the domain ASCII; (name, address), the name "" where there is none."""
    named = _NAMED.fullmatch(value)
    name, address = (named[1], named[2]) if named else ("", value.strip(" "))
    name = _CONTROL.sub(" ", name).strip()
    if len(name) > 1 and name[0] == name[-1] == '"':
        name = re.sub(r"\\(.)", r"\1", name[1:-1])
    if not _ADDRESS.fullmatch(address):
        raise UnsendableAddressError(whose)
    local, _, domain = address.rpartition("@")
    return name, f"{local}@{_ascii_domain(domain, whose)}"


def _ascii_domain(domain: str, whose: str) -> str:
    if domain.isascii():
        return domain
    try:
        return idna.encode(domain, uts46=True).decode("ascii")
    except (idna.IDNAError, UnicodeError):
        raise UnsendableAddressError(whose) from None

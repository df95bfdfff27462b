"""Senders, and text that goes into headers or into the ledger."""

import pytest

from shared.domain.address import (
    MAX_SENDER_NAME_CHARS,
    AddressError,
    Sender,
    check_header_text,
    check_storable,
    has_header_hazard,
    parse_sender,
)

HAZARDS = [
    "Hi\r\nBcc: mole@example.net",
    "Hi\n",
    "Hi\rthere",
    "Ref 17 =?utf-8?q?=0D=0A?=Bcc: mole@example.net",
    "=?utf-8?b?DQo=?=",
    "=??= x",
    "Hi\u2028there",
    "Hi\u2029there",
    "Hi\u0085there",
    "Hi\0there",
    "Hi\x0bthere",
    "Hi\x1bthere",
    "Hi\x7fthere",
]


@pytest.mark.parametrize("text", HAZARDS)
def test_what_could_forge_a_header_is_found(text: str) -> None:
    assert has_header_hazard(text)
    assert check_header_text(text) is not None


@pytest.mark.parametrize("text", ["", "Hi there", "Où ça ?", "a\tb", "1 + 1 =? 3", "what?=", "=?", "a\u00a0b 😀\u200d"])
def test_ordinary_text_is_none(text: str) -> None:
    assert not has_header_hazard(text)
    assert check_header_text(text) is None


def test_a_template_and_a_value_can_be_a_hazard_only_together() -> None:
    assert not has_header_hazard("Ref =")
    assert not has_header_hazard("?utf-8?q?=0A?=")
    assert has_header_hazard("Ref =" + "?utf-8?q?=0A?=")


@pytest.mark.parametrize("text", ["a\0b", "\0", "é\0", "\ud83d", "a\udc00", "\ude00\ud83d"])
def test_text_that_postgres_cannot_hold_is_found(text: str) -> None:
    assert check_storable(text) is not None


@pytest.mark.parametrize("text", ["", "a", "é", "😀", "\uffff", "\x01\x7f", "\ufeff"])
def test_all_other_text_is_storable(text: str) -> None:
    assert check_storable(text) is None


@pytest.mark.parametrize(
    ("text", "sender"),
    [
        ("jane@example.com", Sender("", "jane@example.com")),
        (" <jane@example.com> ", Sender("", "jane@example.com")),
        ("Jane <jane@example.com>", Sender("Jane", "jane@example.com")),
        ('"Doe, Jane" <jane@example.com>', Sender("Doe, Jane", "jane@example.com")),
        (r'"Jane \"JD\" Doe" <jane@example.com>', Sender('Jane "JD" Doe', "jane@example.com")),
        ("Ville de Québec <info@exämple.com>", Sender("Ville de Québec", "info@xn--exmple-cua.com")),
    ],
)
def test_a_sender_is_an_address_with_or_without_a_name(text: str, sender: Sender) -> None:
    assert parse_sender(text) == sender


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Jane",
        "<>",
        "Jane <>",
        "Jane <jane@example.com",
        "jane@example.com>",
        "Jane <jane@example.com> x",
        "A <a@example.com>, B <b@example.com>",
        "a@example.com, b@example.com",
        'Ja"ne <jane@example.com>',
        "Jane <jane@localhost>",
        "J" * (MAX_SENDER_NAME_CHARS + 1) + " <jane@example.com>",
        "x" * 100_000 + "<",
        *(f"{hazard} <jane@example.com>" for hazard in HAZARDS),
        *(f"Jane <jane@example.com{hazard}>" for hazard in HAZARDS),
        "Jane\ud800 <jane@example.com>",
    ],
    ids=lambda text: repr(text)[:40],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(AddressError) as caught:
        parse_sender(text)
    assert "jane" not in str(caught.value)

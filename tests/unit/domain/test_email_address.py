"""E-mail addresses of recipients."""

import random

import pytest
from email_validator import EmailNotValidError, validate_email

from shared.domain.address import AddressError, EmailAddress, _parse_plain_email, dedupe_key, parse_email

LONGEST_DOMAIN = ".".join(["d" * 63, "d" * 63, "d" * 57, "com"])  # 189 octets with its dots


def ask_library(text: str) -> EmailAddress | None:
    try:
        found = validate_email(text, check_deliverability=False, strict=True, allow_smtputf8=False)
    except EmailNotValidError:
        return None
    return EmailAddress(found.normalized, found.ascii_email or "")


@pytest.mark.parametrize(
    ("text", "normalized"),
    [
        ("jane@example.com", "jane@example.com"),
        ("jane+tag@example.com", "jane+tag@example.com"),
        ("o'brien@example.com", "o'brien@example.com"),
        ("jane@sub--domain.example.com", "jane@sub--domain.example.com"),
        ("jane@example.museum", "jane@example.museum"),
        ("Jane.Doe@EXAMPLE.com", "Jane.Doe@example.com"),
        ("Postmaster@Example.com", "postmaster@example.com"),
        ("  jane@example.com \t\r\n", "jane@example.com"),
        ("\u00a0jane@example.com\u200b", "jane@example.com"),
        ("\ufeffjane@example.com", "jane@example.com"),
        ("a" * 64 + "@example.com", "a" * 64 + "@example.com"),
        ("a" * 64 + "@" + LONGEST_DOMAIN, "a" * 64 + "@" + LONGEST_DOMAIN),
    ],
)
def test_these_are_addresses(text: str, normalized: str) -> None:
    assert parse_email(text) == (normalized, normalized)


def test_an_international_domain_is_kept_and_sent_as_punycode() -> None:
    assert parse_email("jane@Exämple.com") == ("jane@exämple.com", "jane@xn--exmple-cua.com")
    assert parse_email("jane@xn--exmple-cua.com") == ("jane@exämple.com", "jane@xn--exmple-cua.com")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "@",
        "jane",
        "jane@example.com.",
        "jane.@example.com",
        ".jane@example.com",
        "ja..ne@example.com",
        "jane@example",
        "jane@-example.com",
        "jane@example-.com",
        "jane@exa_mple.com",
        "jane@example.123",
        "a" * 65 + "@example.com",
        "a" * 64 + "@d" + LONGEST_DOMAIN,
        "jane@" + "d" * 64 + ".com",
        "Jane <jane@example.com>",
        '"Jane" <jane@example.com>',
        "a@example.com,b@example.com",
        "a@example.com;b@example.com",
        "jane@[192.0.2.1]",
        '"john doe"@example.com',
        "john doe@example.com",
        "ja\u200bne@example.com",
        "jané@example.com",
        "jane@localhost",
        "jane@example.test",
        "jane@example.invalid",
        "jane@example.local",
        "jane(comment)@example.com",
        "jane@example.com\r\nBcc: mole@example.net",
        "jane\0@example.com",
        "jane@ex\ud800ample.com",
        "x" * 1_000_000,
        " " * 200_000 + "x",
    ],
    ids=lambda text: repr(text)[:30],
)
def test_these_are_not(text: str) -> None:
    with pytest.raises(AddressError) as caught:
        parse_email(text)
    assert "jane" not in str(caught.value)
    assert "exa" not in str(caught.value)


def test_a_refusal_never_quotes_the_domain() -> None:
    with pytest.raises(AddressError) as caught:
        parse_email("jane@a\u00b7secret.com")
    assert "secret" not in str(caught.value)


_ATOMS = ["a", "Z9", "jane", "info", "INFO", "-", "--", "_", ".", "..", "+", "'", "!", "/", " ", "xn--", "a" * 62, "é"]
_LABELS = ["example", "Example", "a", "b1", "1", "com", "COM", "test", "local", "arpa", "invalid", "museum", "d" * 63]


def corpus(seed: int) -> list[str]:
    """Make addresses that are well-formed, or nearly so, in all ways the rules speak of."""
    choose = random.Random(seed)
    made = []
    for _ in range(3_000):
        local = "".join(choose.choices(_ATOMS, k=choose.randint(0, 4)))
        labels = choose.choices(_LABELS, k=choose.randint(1, 4))
        if choose.random() < 0.2:
            labels[-1] += choose.choice(_ATOMS + _LABELS)
        made.append(f"{local}@{'.'.join(labels)}")
    return made


@pytest.mark.parametrize("seed", [1, 2])
def test_the_fast_way_agrees_with_the_library_on_all_it_accepts(seed: int) -> None:
    fast = {text: found for text in corpus(seed) if (found := _parse_plain_email(text)) is not None}
    assert len(fast) > 400
    assert {text: ask_library(text) for text in fast} == fast


@pytest.mark.parametrize("character", [chr(code) for code in range(128)])
def test_the_fast_way_agrees_with_the_library_on_each_ascii_character(character: str) -> None:
    for text in (
        f"a{character}b@example.com",
        f"{character}@example.com",
        f"a@b{character}c.com",
        f"a@b.co{character}",
    ):
        fast = _parse_plain_email(text)
        assert fast is None or fast == ask_library(text)


def test_ordinary_addresses_take_the_fast_way() -> None:
    for text in ("jane@example.com", "a.b-c_d+e@mail-1.example.co.uk", "O'Brien@Example.COM", "1@2.example"):
        assert _parse_plain_email(text) is not None


def test_two_spellings_of_a_mailbox_have_one_key() -> None:
    assert dedupe_key("email", "Jane@example.com") == dedupe_key("email", "jane@example.com")
    assert dedupe_key("sms", "+16045550123") == "+16045550123"

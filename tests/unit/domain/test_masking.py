"""No address is readable, and what people on call need still is."""

import base64
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.domain.masking import mask_address, mask_email, mask_phone, mask_text, without_rows


@pytest.mark.parametrize(
    ("address", "masked"),
    [
        ("jane.doe+tag@example.com", "j***@e***.com"),
        ("j@mail.example.co.uk", "j***@m***.uk"),
        ("jané@exämple.com", "j***@e***.com"),
        ('"john doe"@example.com', "j***@e***.com"),
        ("jane@[192.0.2.1]", "j***@[***]"),
        ("jane@localhost", "j***@l***"),
        ("jane", "***"),
        ("", "***"),
    ],
)
def test_an_email_address_keeps_first_letters_and_the_top_level_domain(address: str, masked: str) -> None:
    assert mask_email(address) == masked
    assert mask_address("email", address) == masked


@pytest.mark.parametrize(
    ("number", "masked"),
    [("+16045550123", "+1***23"), ("(604) 555-0123", "***23"), ("+44 (0)7700 900123", "+4***23"), ("12345", "***")],
)
def test_a_number_keeps_its_ends(number: str, masked: str) -> None:
    assert mask_phone(number) == masked
    assert mask_address("sms", number) == masked


def test_an_address_of_an_unknown_channel_is_hidden_wholly() -> None:
    assert mask_address("fax", "+16045550123") == "***"


ENCODED = base64.b64encode(b"jane.doe@example.com").decode()


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("550 5.1.1 <jane.doe+tag@example.com>: unknown", "550 5.1.1 <j***@e***.com>: unknown"),
        ("The 'To' number +16045550123 is not valid", "The 'To' number +1***23 is not valid"),
        ("call (604) 555-0123 now", "call ***23 now"),
        ("call 604-555-0123, or 604.555.0199.", "call ***23, or ***99."),
        ("+1 (604) 555-0123", "+1***23"),
        ("+44 (0)7700 900123", "+4***23"),
        ("07700 900123", "***23"),
        ("06 12 34 56 78", "***78"),
        ("0612-34-56-78", "***78"),
        ("to 16045550123.", "to ***23."),
        ("to 447700900123", "to ***23"),
        ('{"to":16045550123}', '{"to":***23}'),
        ("to=%2B16045550123&x=1", "to=+1***23&x=1"),
        ("tel:+1%20604%20555%200123", "tel:+1***23"),
        ("to=jane%40example.com&x=1", "to=j***%40e***.com&x=1"),
        ("a=1&to=jane%2540example.com", "a=1&to=j***%2540e***.com"),
        ("https://h.example/s?to=jane@example.com&x=1", "https://h.example/s?to=j***@e***.com&x=1"),
        ("mailto:jane@example.com?subject=x", "mailto:j***@e***.com?subject=x"),
        ("jane\\u0040example.com", "j***\\u0040e***.com"),
        ("jane&#64;example.com", "j***&#64;e***.com"),
        ("jane=40example.com", "j***=40e***.com"),
        (f"value {ENCODED} refused", "value *** refused"),
        (f"=?utf-8?b?{ENCODED}?=", "=?utf-8?b?***?="),
        (base64.urlsafe_b64encode(b'{"email":"jane@example.com"}').decode().rstrip("="), "***"),
        (base64.b64encode(b"+16045550123").decode(), "***"),
        ('"Jane Doe" <jane@example.com>', "*** <j***@e***.com>"),
        ("To: Jane Doe <jane@example.com>", "To: *** <j***@e***.com>"),
        ("Mailbox <jane@example.com> full", "Mailbox <j***@e***.com> full"),
        ("jané@exämple.com", "j***@e***.com"),
        ("o'brien@example.com", "o***@e***.com"),
        ('"john doe"@example.com', "j***@e***.com"),
        ("File 'a.py', line 3, in send('jane@example.com')", "File 'a.py', line 3, in send('j***@e***.com')"),
        ("<a@example.com>,<b@example.net>", "<a***@e***.com>,<b***@e***.net>"),
        ("jane@example.com.", "j***@e***.com."),
        ("cut in the middle: jane@exam", "cut in the middle: j***@e***"),
        ("cut in the middle: jane@", "cut in the middle: j***@***"),
        ("postgres://bob:secret@db.example.com/x", "postgres://***@db.example.com/x"),
        ("/G=Jane/S=Doe/@example.com", "/***@e***.com"),
        ("a/b=c@example.com", "a***@e***.com"),
    ],
)
def test_every_form_of_an_address_is_masked_within_a_text(text: str, masked: str) -> None:
    assert mask_text(text) == masked
    assert mask_text(masked) == masked


@pytest.mark.parametrize(
    "text",
    [
        "send 123e4567-e89b-12d3-a456-426614174000 is queued",
        "2026-11-30T15:40:00.123456+00:00 INFO 2026-11-30 15:40:00,123",
        "20261130154000 20261130T154000Z",
        "took 0.123456789 s, 1234567890 ns, retry in 300 s",
        "at 1764520000 or 1764520000123",
        "192.168.100.200 203.0.113.45 2001:db8::1",
        "451 4.7.0 try later; 550 5.1.1 unknown; Twilio 21211",
        "queue id 4F2A91C0D3, SMabc6045550123def, sha 3b5d5c3712955042212316173ccf37be",
        "1,234,567,890 bytes of 12 345 678",
        "retries=40 load=40% @channel a @ b",
        "01-12-2026 14:30:00",
        "worker-send-authentication-failed /admin/monitoring/queues/events",
        "",
    ],
)
def test_ids_times_durations_and_codes_stay(text: str) -> None:
    assert mask_text(text) == text


def test_masking_comes_before_the_cut() -> None:
    for start in range(990, 1_030):
        masked = mask_text("x " * (start // 2) + "jane.doe@example.com +16045550123 end")
        assert len(masked) <= 1_024
        assert "jane" not in masked
        assert "6045" not in masked


def test_a_cut_is_shown_within_the_limit() -> None:
    assert mask_text("abc " * 10, limit=10) == "abc abc a…"
    assert mask_text("abc", limit=3) == "abc"


@pytest.mark.parametrize("separator", [" ", "", "\n", ","])
def test_a_very_long_text_leaves_no_half_address_either(separator: str) -> None:
    for extra in range(0, 40, 3):
        text = "y" * extra + (separator + "person.with.a.long.name.of.his.own@mail.example.com") * 500
        masked = mask_text(text, limit=1_024)
        assert len(masked) <= 1_024
        assert "person" not in masked


def test_a_very_long_text_leaves_no_half_number_either() -> None:
    shrinks = base64.b64encode(b"jane@example.com" * 45).decode()
    for extra in range(30, 80):
        masked = mask_text("y" * extra + f" {shrinks} 604 555 0123", limit=64)
        assert "604" not in masked
        assert "jane" not in masked


def test_text_that_postgres_cannot_hold_is_made_storable() -> None:
    assert mask_text("a\0b \ud800") == "a\ufffdb ?"


@pytest.mark.parametrize("piece", ["@", "a@", "1 ", "1", "(604) ", "A ", "<", "'", "ab-", "a@b ", '"', "%40", "://"])
def test_hostile_text_is_masked_in_bounded_time(piece: str) -> None:
    mask_text(piece * (100_000 // len(piece)))


_LOCAL = st.text(alphabet="abcxyzABC019._+-'!#$%&*/=?^`{|}~é", min_size=1, max_size=20).map(lambda t: "q" + t + "zq")
_FRAMES = st.sampled_from(["{}", "<{}>", "to={}&x", "({})", "'{}'", '"{}"', "x: {}, y", "RCPT TO:<{}>", "{}: unknown"])


@given(_LOCAL, _FRAMES, st.sampled_from([str, quote, lambda text: base64.b64encode(text.encode()).decode()]))
@settings(max_examples=60, deadline=None)
def test_no_local_part_is_readable_in_any_frame(local: str, frame: str, encode: object) -> None:
    assert callable(encode)
    shown = encode(f"{local}@example.com")
    masked = mask_text(frame.format(shown))
    assert shown not in masked
    assert "zq@" not in masked
    assert "zq%40" not in masked


ROW = 'DETAIL:  Failing row contains (1, {"name": "Ada\nLovelace", "code": "831204"}, null).'
LINE = 'CONTEXT:  COPY delivery, line 7: "Ada Lovelace\\t831204"'


@pytest.mark.parametrize(
    "told",
    [
        f"violates a rule\n{ROW}",
        f"violates a rule\n{ROW}\nCONTEXT:  PL/pgSQL function f()",
        f"extra data\n{LINE}",
        f"Traceback\n{ROW}\n\nDuring handling of the above exception, another exception occurred:\n\nduplicate\n{ROW}",
        f"  | violates a rule\n  | {ROW}\n  +------",
    ],
)
def test_a_row_that_an_error_of_the_ledger_tells_is_left_out(told: str) -> None:
    left = without_rows(told)
    for value in ("Ada", "Lovelace", "831204"):
        assert value not in left
    assert left.splitlines()[0] == told.splitlines()[0]
    assert ("PL/pgSQL" in left) == ("PL/pgSQL" in told)
    assert left.count("(left out)") == told.count("831204")


def test_text_that_tells_no_row_stays() -> None:
    text = "DETAILS: a COPY of the contract\nin CONTEXT: of its time"
    assert without_rows(text) == text

"""SMTP stage by stage against a real relay: what each answer, and each loss of the connection, comes to."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from shared.domain.outcome import (
    Accepted,
    Ambiguous,
    Configuration,
    NotAttempted,
    Outcome,
    Permanent,
    Scope,
    Suppressed,
    Throttled,
    Transient,
)
from tests.integration.providers.messages import email_message, send_all
from tests.integration.providers.relays import bare, config_for, send_one
from tests.support.scripted_http import CERTIFICATE, CLOSE, HANG, RESET, Pause, Step, drip, free_port
from tests.support.scripted_smtp import ACCEPT_THEN, ScriptedSmtp, scripted_smtp
from workers.providers.smtp import SmtpProvider
from workers.providers.smtp_session import SmtpConfig


@pytest.fixture
def provider(relay: ScriptedSmtp) -> Iterator[SmtpProvider]:
    provider = SmtpProvider(config_for(relay))
    yield provider
    provider.close()


def test_messages_arrive_whole_each_once_over_kept_connections(relay: ScriptedSmtp, provider: SmtpProvider) -> None:
    messages = [email_message(f"p{n}@example.com", text=f"Number {n}\n.\n..dots\n") for n in range(40)]
    for _ in range(3):
        assert send_all(provider, messages) == [Accepted("4F2A1")] * 40
    assert set(Counter(taken.recipient for taken in relay.taken).values()) == {3}
    assert relay.connections <= 4
    taken = next(one for one in relay.taken if one.recipient == "p7@example.com")
    assert taken.sender == "desk@example.com"
    assert taken.content.endswith(b"\r\n\r\nNumber 7\r\n.\r\n..dots\r\n")
    assert b"\r\n..\r\n...dots\r\n" in taken.wire
    assert f"Message-ID: <{messages[7].key}@mail.example.com>".encode() in taken.content


def test_a_thread_that_could_not_be_started_is_not_waited_for(relay: ScriptedSmtp, provider: SmtpProvider) -> None:
    before = threading.stack_size(1 << 48)  # more than a process can have
    try:
        for _ in range(4):
            with pytest.raises(RuntimeError):
                send_one(provider)
    finally:
        threading.stack_size(before)
    assert send_one(provider) == Accepted("4F2A1")
    assert len(relay.taken) == 1


STAGES: list[tuple[str, str, Step | bytes, Outcome]] = [
    ("greeting 421", "banner", b"421 4.3.2 going down\r\n", Transient(Scope.PROVIDER, "smtp_greeting_4.3.2")),
    ("greeting 421 rate", "banner", b"421 4.7.0 slow down\r\n", Throttled("smtp_greeting_4.7.0")),
    ("greeting 421 too many", "banner", b"421 too many connections\r\n", Throttled("smtp_greeting_421")),
    ("greeting 450", "banner", b"450 4.3.2 busy\r\n", Transient(Scope.PROVIDER, "smtp_greeting_4.3.2")),
    ("greeting 454", "banner", b"454 later\r\n", Transient(Scope.PROVIDER, "smtp_greeting_454")),
    ("greeting 554", "banner", b"554 5.7.1 not you\r\n", Configuration(Scope.PROVIDER, "smtp_greeting_5.7.1")),
    ("greeting close", "banner", [CLOSE], Transient(Scope.PROVIDER, "smtp_greeting_lost")),
    ("greeting reset", "banner", [Pause(0.05), RESET], Transient(Scope.PROVIDER, "smtp_greeting_lost")),
    ("greeting hang", "banner", [HANG], Transient(Scope.PROVIDER, "smtp_greeting_timeout", timed_out=True)),
    ("greeting garbage", "banner", b"HTTP/1.1 200 OK\r\n", Transient(Scope.PROVIDER, "smtp_greeting_unreadable")),
    ("ehlo 451", "ehlo", b"451 4.3.0 later\r\n", Transient(Scope.PROVIDER, "smtp_ehlo_4.3.0")),
    ("ehlo 452", "ehlo", b"452 later\r\n", Transient(Scope.PROVIDER, "smtp_ehlo_452")),
    ("ehlo 550", "ehlo", b"550 5.7.1 no\r\n", Configuration(Scope.PROVIDER, "smtp_ehlo_5.7.1")),
    ("ehlo hang", "ehlo", [HANG], Transient(Scope.PROVIDER, "smtp_ehlo_timeout", timed_out=True)),
    ("mail 421", "mail", b"421 4.3.0 bye\r\n", Transient(Scope.PROVIDER, "smtp_mail_4.3.0")),
    ("mail 421 rate", "mail", b"421 4.7.0 deferred\r\n", Throttled("smtp_mail_4.7.0")),
    ("mail 450 rate", "mail", b"450 4.7.1 rate\r\n", Throttled("smtp_mail_4.7.1")),
    ("mail 451", "mail", b"451 4.3.0 error\r\n", Transient(Scope.PROVIDER, "smtp_mail_4.3.0")),
    ("mail 452 storage", "mail", b"452 4.3.1 full\r\n", Throttled("smtp_mail_4.3.1")),
    ("mail 530", "mail", b"530 5.7.0 authenticate first\r\n", Configuration(Scope.PROVIDER, "smtp_mail_5.7.0")),
    ("mail 550", "mail", b"550 5.7.1 sender refused\r\n", Configuration(Scope.SENDER, "smtp_mail_5.7.1")),
    ("mail 550 of the domain", "mail", b"550 5.1.7 bad sender\r\n", Configuration(Scope.SENDER, "smtp_mail_5.1.7")),
    ("mail 552 bare", "mail", b"552 message size exceeds the limit\r\n", Permanent(Scope.MESSAGE, "smtp_mail_552")),
    ("mail 552 5.2.3", "mail", b"552 5.2.3 message too large\r\n", Permanent(Scope.MESSAGE, "smtp_mail_5.2.3")),
    ("mail 553", "mail", b"553 5.1.8 sender unknown\r\n", Configuration(Scope.SENDER, "smtp_mail_5.1.8")),
    ("mail 552", "mail", b"552 5.3.4 too big\r\n", Permanent(Scope.MESSAGE, "smtp_mail_5.3.4")),
    ("mail hang", "mail", [HANG], Transient(Scope.PROVIDER, "smtp_mail_timeout", timed_out=True)),
    ("mail close", "mail", [CLOSE], Transient(Scope.PROVIDER, "smtp_mail_lost")),
    ("rcpt 550", "rcpt", b"550 5.1.1 no such user\r\n", Permanent(Scope.RECIPIENT, "smtp_rcpt_5.1.1")),
    ("rcpt 550 bare", "rcpt", b"550 no such user\r\n", Permanent(Scope.RECIPIENT, "smtp_rcpt_550")),
    ("rcpt 553", "rcpt", b"553 5.1.3 bad address syntax\r\n", Permanent(Scope.RECIPIENT, "smtp_rcpt_5.1.3")),
    ("rcpt no route", "rcpt", b"550 5.4.4 no route to host\r\n", Permanent(Scope.RECIPIENT, "smtp_rcpt_5.4.4")),
    ("rcpt 556", "rcpt", b"556 5.1.10 null MX\r\n", Permanent(Scope.RECIPIENT, "smtp_rcpt_5.1.10")),
    ("rcpt 552 full", "rcpt", b"552 5.2.2 mailbox full\r\n", Permanent(Scope.RECIPIENT, "smtp_rcpt_5.2.2")),
    ("rcpt 552 big", "rcpt", b"552 5.3.4 too big\r\n", Permanent(Scope.MESSAGE, "smtp_rcpt_5.3.4")),
    ("rcpt 452 full", "rcpt", b"452 4.2.2 mailbox full\r\n", Transient(Scope.RECIPIENT, "smtp_rcpt_4.2.2")),
    ("rcpt greylist", "rcpt", b"450 4.2.0 greylisted\r\n", Transient(Scope.RECIPIENT, "smtp_rcpt_4.2.0")),
    ("rcpt greylist 4.7", "rcpt", b"451 4.7.1 greylisted\r\n", Transient(Scope.RECIPIENT, "smtp_rcpt_4.7.1")),
    ("rcpt odd 4xx", "rcpt", b"432 later\r\n", Transient(Scope.RECIPIENT, "smtp_rcpt_432")),
    ("rcpt 451 system", "rcpt", b"451 4.3.0 lookup failure\r\n", Transient(Scope.PROVIDER, "smtp_rcpt_4.3.0")),
    ("rcpt too many", "rcpt", b"452 4.5.3 too many\r\n", Throttled("smtp_rcpt_4.5.3")),
    ("rcpt 550 too many", "rcpt", b"550 5.5.3 too many recipients\r\n", Throttled("smtp_rcpt_5.5.3")),
    ("rcpt 552 too many", "rcpt", b"552 too many recipients\r\n", Throttled("smtp_rcpt_552")),
    ("rcpt relay denied", "rcpt", b"554 5.7.1 relay denied\r\n", Permanent(Scope.RECIPIENT, "smtp_rcpt_5.7.1")),
    ("rcpt suppressed", "rcpt", b"550 5.7.1 on the suppression list\r\n", Suppressed("smtp_rcpt_5.7.1")),
    ("dot suppressed", "dot", b"554 5.7.1 recipient address was suppressed\r\n", Suppressed("smtp_dot_5.7.1")),
    ("rcpt 530", "rcpt", b"530 5.7.0 authenticate\r\n", Configuration(Scope.PROVIDER, "smtp_rcpt_5.7.0")),
    ("rcpt 421", "rcpt", b"421 4.4.2 bye\r\n", Transient(Scope.PROVIDER, "smtp_rcpt_4.4.2")),
    ("rcpt 421 rate", "rcpt", b"421 4.7.0 deferred\r\n", Throttled("smtp_rcpt_4.7.0")),
    ("rcpt close", "rcpt", [CLOSE], Transient(Scope.PROVIDER, "smtp_rcpt_lost")),
    ("data 451", "data", b"451 4.3.0 later\r\n", Transient(Scope.PROVIDER, "smtp_data_4.3.0")),
    ("data 554", "data", b"554 5.5.1 no\r\n", Permanent(Scope.MESSAGE, "smtp_data_5.5.1")),
    ("data reset", "data", [RESET], Transient(Scope.PROVIDER, "smtp_data_lost")),
    ("dot 451", "dot", b"451 4.3.0 later\r\n", Transient(Scope.PROVIDER, "smtp_dot_4.3.0")),
    ("dot 421", "dot", b"421 4.3.0 later\r\n", Transient(Scope.PROVIDER, "smtp_dot_4.3.0")),
    ("dot 421 rate", "dot", b"421 4.7.0 deferred\r\n", Throttled("smtp_dot_4.7.0")),
    ("dot 554", "dot", b"554 5.7.1 spam\r\n", Permanent(Scope.MESSAGE, "smtp_dot_5.7.1")),
    ("dot 550 recipient", "dot", b"550 5.1.1 no such user\r\n", Permanent(Scope.RECIPIENT, "smtp_dot_5.1.1")),
    ("dot 454 SES rate", "dot", b"454 Throttling failure: Maximum sending rate\r\n", Throttled("smtp_dot_454")),
    (
        "dot 454 SES day",
        "dot",
        b"454 Throttling failure: Daily message quota\r\n",
        Throttled("smtp_dot_454", retry_after_s=3_600.0),
    ),
    ("dot close", "dot", [CLOSE], Ambiguous("smtp_dot_lost", provider_failed=True)),
    ("dot reset", "dot", [RESET], Ambiguous("smtp_dot_lost", provider_failed=True)),
    ("dot accepted, then close", "dot", [ACCEPT_THEN, CLOSE], Ambiguous("smtp_dot_lost", provider_failed=True)),
    (
        "dot accepted, then hang",
        "dot",
        [ACCEPT_THEN, HANG],
        Ambiguous("smtp_dot_timeout", timed_out=True, provider_failed=True),
    ),
    (
        "dot drip",
        "dot",
        drip(b"250 2.0.0 ok\r\n", every_s=0.1),
        Ambiguous("smtp_dot_timeout", timed_out=True, provider_failed=True),
    ),
    ("dot garbage", "dot", b"what?\r\n", Ambiguous("smtp_dot_unreadable")),
    ("dot odd code", "dot", b"354 go on\r\n", Ambiguous("smtp_dot_unreadable")),
    ("dot endless answer", "dot", [b"250-" + b"x" * 70_000], Ambiguous("smtp_dot_lost", provider_failed=True)),
    ("dot multi-line", "dot", b"250-2.0.0 fine\r\n250 2.0.0 really\r\n", Accepted(None)),
    ("dot 250 of Exchange", "dot", b"250 2.6.0 <a@b> [InternalId=7] Queued mail for delivery\r\n", Accepted(None)),
    ("dot 250 of SES", "dot", b"250 Ok 0100018c-000000\r\n", Accepted("0100018c-000000")),
    ("dot 250 of Exim", "dot", b"250 OK id=1rX-0004\r\n", Accepted("1rX-0004")),
]


@pytest.mark.parametrize(("stage", "step", "expected"), [row[1:] for row in STAGES], ids=[row[0] for row in STAGES])
def test_each_answer_at_each_stage_has_its_outcome(
    relay: ScriptedSmtp, provider: SmtpProvider, stage: str, step: Step | bytes, expected: Outcome
) -> None:
    relay.once(stage, step)
    started = time.monotonic()
    assert bare(send_one(provider)) == expected
    assert time.monotonic() - started < 2.0
    expected_count = 1 if isinstance(expected, Accepted) or (isinstance(step, list) and ACCEPT_THEN in step) else 0
    assert len(relay.taken) in {
        expected_count,
        1 if stage == "dot" and isinstance(expected, Ambiguous) else expected_count,
    }


@pytest.mark.parametrize(("stage", "step"), [row[1:3] for row in STAGES], ids=[row[0] for row in STAGES])
def test_after_any_failure_the_next_message_goes_through(
    relay: ScriptedSmtp, provider: SmtpProvider, stage: str, step: Step | bytes
) -> None:
    relay.once(stage, step)
    send_one(provider)
    assert send_one(provider, "next@example.com") == Accepted("4F2A1")
    assert [t.recipient for t in relay.taken].count("next@example.com") == 1


@pytest.mark.parametrize("step", [[CLOSE], [RESET], [b"421 4.3.0 shutting down\r\n"]], ids=["close", "reset", "421"])
def test_a_drop_in_the_middle_of_the_content_is_transient(
    relay: ScriptedSmtp, provider: SmtpProvider, step: Step
) -> None:
    relay.once("content", step)
    big = email_message(text="A line of text.\n" * 500_000)
    outcome = send_all(provider, [big])[0]
    assert isinstance(outcome, Transient)
    assert outcome.scope is Scope.PROVIDER
    assert relay.taken == []


@pytest.mark.parametrize("early", [b"nonsense\r\n", b"250 2.0.0 queued\r\n", b"421 4.3.0 bye\r\n"])
def test_a_relay_that_speaks_before_the_dot_never_gets_the_dot(
    relay: ScriptedSmtp, provider: SmtpProvider, early: bytes
) -> None:
    relay.once("data", b"354 go on\r\n" + early)
    assert isinstance(send_one(provider), Transient)
    assert relay.taken == []


@pytest.mark.parametrize(
    "step", [[CLOSE], [RESET], [HANG], b"421 bye\r\n", b"500 no\r\n"], ids=["close", "reset", "hang", "421", "500"]
)
def test_what_becomes_of_quit_does_not_matter_after_a_250(relay: ScriptedSmtp, step: Step | bytes) -> None:
    relay.always("quit", step)
    provider = SmtpProvider(config_for(relay))
    assert send_one(provider) == Accepted("4F2A1")
    provider.close()
    relay.wait_until_closed()
    assert len(relay.taken) == 1


def test_an_idle_connection_the_relay_closed_is_replaced_without_using_an_attempt(
    relay: ScriptedSmtp, provider: SmtpProvider
) -> None:
    assert send_one(provider) == Accepted("4F2A1")
    relay.close_connections()
    assert send_one(provider) == Accepted("4F2A1")
    assert (len(relay.taken), relay.connections) == (2, 2)


@pytest.mark.parametrize("step", [[CLOSE], [RESET], b"421 4.4.2 idle too long\r\n"], ids=["close", "reset", "421"])
def test_a_kept_connection_that_dies_at_mail_from_is_replaced_too(
    relay: ScriptedSmtp, provider: SmtpProvider, step: Step | bytes
) -> None:
    assert send_one(provider) == Accepted("4F2A1")
    relay.once("mail", step)
    assert send_one(provider) == Accepted("4F2A1")
    assert (len(relay.taken), relay.connections) == (2, 2)


def test_a_refused_recipient_leaves_the_others_and_the_connection_alone(relay: ScriptedSmtp) -> None:
    provider = SmtpProvider(replace(config_for(relay), connections_per_process=1))
    relay.once("rcpt", b"250 2.1.5 ok\r\n", b"550 5.1.1 no\r\n", b"451 4.2.1 later\r\n")
    outcomes = send_all(provider, [email_message(f"p{n}@example.com") for n in range(4)])
    provider.close()
    assert [type(one) for one in outcomes] == [Accepted, Permanent, Transient, Accepted]
    assert [t.recipient for t in relay.taken] == ["p0@example.com", "p3@example.com"]
    assert relay.connections == 1


def test_a_relay_that_refuses_or_cannot_be_found_is_transient() -> None:
    config = SmtpConfig(host="127.0.0.1", port=free_port(), security="none", connect_timeout_ms=300)
    for broken in (config, replace(config, host="nowhere.invalid")):
        provider = SmtpProvider(broken)
        outcome = send_one(provider)
        provider.close()
        assert isinstance(outcome, Transient)
        assert (outcome.code, outcome.scope) == ("smtp_connect_lost", Scope.PROVIDER)


def test_messages_no_connection_was_free_for_in_time_were_not_attempted(relay: ScriptedSmtp) -> None:
    relay.always("banner", [HANG])
    provider = SmtpProvider(
        replace(config_for(relay), connections_per_process=1, timeout_ms=300, connect_timeout_ms=400)
    )
    outcomes = send_all(provider, [email_message(f"p{n}@example.com") for n in range(5)])
    provider.close()
    assert [type(one) for one in outcomes] == [Transient, *[NotAttempted] * 4]
    assert relay.connections == 1


def test_the_caller_gets_to_run_while_a_relay_is_slow(relay: ScriptedSmtp, provider: SmtpProvider) -> None:
    relay.once("dot", [Pause(0.25), b"250 ok\r\n"])
    answers = list(provider.send([email_message()]))
    assert answers.count(None) >= 3


# --- TLS and AUTH -----------------------------------------------------------------------------------------

TLS_EXTENSIONS = ("STARTTLS", "AUTH PLAIN LOGIN")


def secured(relay: ScriptedSmtp, **changes: object) -> SmtpConfig:
    config = replace(config_for(relay), security="starttls", username="user", password="p4ss", ca_file=str(CERTIFICATE))
    return replace(config, **changes)  # type: ignore[arg-type]


def send_with(config: SmtpConfig) -> Outcome:
    provider = SmtpProvider(config)
    try:
        return send_one(provider)
    finally:
        provider.close()


def test_starttls_then_auth_then_the_message() -> None:
    with scripted_smtp(extensions=TLS_EXTENSIONS) as relay:
        assert send_with(secured(relay)) == Accepted("4F2A1")
        assert relay.taken[0].was_tls
        verbs = [line.split()[0] for line in relay.commands]
        assert verbs[:6] == ["EHLO", "STARTTLS", "EHLO", "AUTH", "MAIL", "RCPT"]
        assert "AUTH PLAIN AHVzZXIAcDRzcw==" in relay.commands


def test_implicit_tls_and_auth_login() -> None:
    with scripted_smtp(tls=True, extensions=("AUTH LOGIN",)) as relay:
        assert send_with(secured(relay, security="tls")) == Accepted("4F2A1")
        assert relay.taken[0].was_tls
        assert relay.commands[1:3] == ["AUTH LOGIN dXNlcg==", "cDRzcw=="]


#: A TLS record that ends the connection: alert, TLS 1.0 framing, two bytes, warning, close_notify (RFC 8446 §6.1).
CLOSE_NOTIFY = b"\x15\x03\x01\x00\x02\x01\x00"

TLS_FAILURES: list[tuple[str, str, Step | bytes, Outcome]] = [
    ("454", "starttls", b"454 4.7.0 TLS not available\r\n", Transient(Scope.PROVIDER, "smtp_starttls_4.7.0")),
    ("501", "starttls", b"501 5.5.4 no\r\n", Configuration(Scope.PROVIDER, "smtp_starttls_5.5.4")),
    ("close", "starttls", [b"220 go\r\n", CLOSE], Transient(Scope.PROVIDER, "smtp_starttls_lost")),
    (
        "leaves politely",
        "starttls",
        [b"220 go\r\n", Pause(0.05), CLOSE_NOTIFY, CLOSE],
        Transient(Scope.PROVIDER, "smtp_starttls_lost"),
    ),
    (
        "text before TLS",
        "starttls",
        [b"220 go\r\n250 injected\r\n"],
        Configuration(Scope.PROVIDER, "smtp_starttls_tls"),
    ),
    (
        "no TLS follows",
        "starttls",
        [b"220 go\r\n", Pause(0.05), b"this is not TLS at all\r\n", CLOSE],
        Configuration(Scope.PROVIDER, "smtp_starttls_tls"),
    ),
    ("auth 535", "auth", b"535 5.7.8 bad credentials\r\n", Configuration(Scope.PROVIDER, "smtp_auth_5.7.8")),
    ("auth 534", "auth", b"534 5.7.9 too weak\r\n", Configuration(Scope.PROVIDER, "smtp_auth_5.7.9")),
    ("auth 538", "auth", b"538 5.7.11 encrypt first\r\n", Configuration(Scope.PROVIDER, "smtp_auth_5.7.11")),
    ("auth 530", "auth", b"530 5.7.0 authenticate first\r\n", Configuration(Scope.PROVIDER, "smtp_auth_5.7.0")),
    ("auth 454", "auth", b"454 4.7.0 temporary failure\r\n", Transient(Scope.PROVIDER, "smtp_auth_4.7.0")),
    ("auth hang", "auth", [HANG], Transient(Scope.PROVIDER, "smtp_auth_timeout", timed_out=True)),
]


@pytest.mark.parametrize(("stage", "step", "expected"), [r[1:] for r in TLS_FAILURES], ids=[r[0] for r in TLS_FAILURES])
def test_a_failure_of_tls_or_auth_sends_nothing_and_never_goes_on_in_clear(
    stage: str, step: Step | bytes, expected: Outcome
) -> None:
    with scripted_smtp(extensions=TLS_EXTENSIONS) as relay:
        relay.always(stage, step)
        assert bare(send_with(secured(relay))) == expected
        assert not any(line.startswith("MAIL") for line in relay.commands)


def test_a_relay_without_starttls_is_configuration() -> None:
    with scripted_smtp(extensions=("AUTH PLAIN",)) as relay:
        assert bare(send_with(secured(relay))) == Configuration(Scope.PROVIDER, "smtp_starttls_tls")
        assert not any("AUTH" in line or "MAIL" in line for line in relay.commands)


@pytest.mark.parametrize("ca_file", [None, "/nowhere/ca.pem"], ids=["public authorities", "missing file"])
@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_a_certificate_that_does_not_verify_is_configuration(security: str, ca_file: str | None) -> None:
    with scripted_smtp(tls=security == "tls", extensions=TLS_EXTENSIONS) as relay:
        outcome = send_with(secured(relay, security=security, ca_file=ca_file))
        assert isinstance(outcome, Configuration)
        assert relay.taken == []


def test_a_relay_without_a_mechanism_we_speak_is_configuration() -> None:
    with scripted_smtp(extensions=("STARTTLS", "AUTH GSSAPI")) as relay:
        assert isinstance(send_with(secured(relay)), Configuration)


# --- what a relay announces -------------------------------------------------------------------------------


def test_a_message_above_the_announced_size_is_refused_before_it_is_sent() -> None:
    with scripted_smtp(extensions=("SIZE 100",)) as relay:
        outcome = send_with(config_for(relay))
        assert isinstance(outcome, Permanent)
        assert (outcome.code, outcome.scope) == ("smtp_too_big", Scope.MESSAGE)
        assert not any(line.startswith("MAIL") for line in relay.commands)


@pytest.mark.parametrize(("extensions", "kind"), [(("SMTPUTF8", "8BITMIME"), Accepted), ((), Permanent)])
def test_an_address_outside_ascii_needs_a_relay_that_takes_it(extensions: tuple[str, ...], kind: type) -> None:
    with scripted_smtp(extensions=extensions) as relay:
        provider = SmtpProvider(config_for(relay))
        outcome = send_one(provider, "jörg@bücher.example")
        provider.close()
        assert isinstance(outcome, kind)
        if kind is Accepted:
            assert any(line.endswith("SMTPUTF8 BODY=8BITMIME") for line in relay.commands)
            assert relay.taken[0].recipient.encode("latin-1").decode() == "jörg@xn--bcher-kva.example"


@pytest.mark.parametrize("to", ["a@example.com>\r\nRCPT TO:<b@example.com", "no-at-sign", "a b@example.com", ""])
def test_an_address_that_would_break_the_envelope_never_reaches_the_wire(
    relay: ScriptedSmtp, provider: SmtpProvider, to: str
) -> None:
    outcome = send_one(provider, to)
    assert isinstance(outcome, Permanent)
    assert outcome.scope is Scope.RECIPIENT
    assert relay.commands == []


def test_a_sender_that_cannot_be_put_on_the_wire_pauses_its_send_only(
    relay: ScriptedSmtp, provider: SmtpProvider
) -> None:
    outcome = send_all(provider, [email_message(sender="nobody")])[0]
    assert isinstance(outcome, Configuration)
    assert outcome.scope is Scope.SENDER
    assert relay.connections == 0


def test_the_password_is_in_no_repr() -> None:
    with scripted_smtp() as relay:
        assert "p4ss" not in repr(secured(relay))

"""SMTP: a relay that refuses everybody, and conversations that are cut or never begin."""

import socket
import threading
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
    Transient,
)
from tests.integration.providers.messages import email_message
from tests.integration.providers.relays import bare, config_for, send_one
from tests.support.scripted_http import HANG, Step
from tests.support.scripted_smtp import ScriptedSmtp
from workers.providers.smtp import SmtpProvider
from workers.providers.smtp_session import SmtpConfig


@pytest.fixture
def provider(relay: ScriptedSmtp) -> Iterator[SmtpProvider]:
    provider = SmtpProvider(config_for(relay))
    yield provider
    provider.close()


@pytest.mark.parametrize("refusal", ["554 5.7.1 <{}>: Relay access denied", "550 relay not permitted", "550 5.7.1 No"])
def test_the_same_refusal_to_relay_for_five_different_recipients_is_our_configuration(
    relay: ScriptedSmtp, provider: SmtpProvider, refusal: str
) -> None:
    outcomes = []
    for n in range(6):
        relay.once("rcpt", f"{refusal.format(f'p{n}@example.com')}\r\n".encode())
        outcomes.append(send_one(provider, f"p{n}@example.com"))
    assert [type(one) for one in outcomes] == [Permanent] * 4 + [Configuration] * 2
    assert bare(outcomes[5]) == Configuration(Scope.PROVIDER, "smtp_relay_denied")


def test_a_message_that_the_relay_takes_ends_the_row_of_refusals(relay: ScriptedSmtp, provider: SmtpProvider) -> None:
    for n in range(9):
        relay.once("rcpt", b"250 ok\r\n" if n == 4 else b"550 relay not permitted\r\n")
        assert isinstance(send_one(provider, f"p{n}@example.com"), Accepted if n == 4 else Permanent)


@pytest.mark.parametrize(
    ("refusal", "kind"),
    [
        (b"550 5.7.1 on the suppression list\r\n", Suppressed),
        (b"550 5.7.1 no such user\r\n", Permanent),
        (b"550 5.1.1 no such user\r\n", Permanent),
    ],
)
def test_refusals_of_the_recipients_themselves_never_set_the_relay_aside(
    relay: ScriptedSmtp, provider: SmtpProvider, refusal: bytes, kind: type
) -> None:
    relay.always("rcpt", refusal)
    assert [type(send_one(provider, f"p{n}@example.com")) for n in range(8)] == [kind] * 8


def cut_once(provider: SmtpProvider, begun: threading.Event, count: int) -> list[Outcome]:
    """Send so many messages, and cut them when `begun` says so; their outcomes."""
    outcomes = []
    for answer in provider.send([email_message(f"p{n}@example.com") for n in range(count)]):
        if answer is not None:
            outcomes.append(answer[1])
        elif begun.is_set():
            provider.cut()
    return outcomes


def hang_at(relay: ScriptedSmtp, stage: str) -> threading.Event:
    """Have the relay say nothing more from a stage on; tells when it is there."""
    reached = threading.Event()

    def hang() -> Step:
        reached.set()
        return [HANG]

    relay.always(stage, hang)
    return reached


PATIENT = {"connect_timeout_ms": 30_000, "timeout_ms": 30_000, "final_dot_timeout_ms": 30_000}


def test_a_cut_leaves_messages_that_have_not_begun_unattempted_and_only_the_one_under_way_unsure(
    relay: ScriptedSmtp,
) -> None:
    begun = hang_at(relay, "dot")
    provider = SmtpProvider(replace(config_for(relay), connections_per_process=1, **PATIENT))  # type: ignore[arg-type]
    outcomes = cut_once(provider, begun, 5)
    provider.close()
    assert outcomes.count(NotAttempted("draining")) == 4
    [unsure] = [outcome for outcome in outcomes if isinstance(outcome, Ambiguous)]
    assert unsure.code == "call_cut"
    assert "message_id" in unsure.evidence


@pytest.mark.parametrize("stage", ["banner", "ehlo", "mail", "rcpt", "data"])
def test_a_cut_before_the_final_dot_gives_the_message_back_and_it_is_not_sent_after_all(
    relay: ScriptedSmtp, stage: str
) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def late() -> Step:
        reached.set()
        go_on.wait(20)
        return [{"banner": b"220 hello\r\n", "data": b"354 go on\r\n"}.get(stage, b"250 ok\r\n")]

    relay.always(stage, late)
    provider = SmtpProvider(replace(config_for(relay), **PATIENT))  # type: ignore[arg-type]
    assert cut_once(provider, reached, 1) == [NotAttempted("draining")]
    go_on.set()
    relay.wait_until_closed()
    provider.close()
    assert relay.taken == []


def test_a_relay_that_cannot_be_connected_to_in_time_is_transient() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, socket.create_connection(full.getsockname()):
        # Linux drops what no longer fits into the queue of connections that nobody has accepted.
        port = full.getsockname()[1]
        provider = SmtpProvider(
            SmtpConfig(host="127.0.0.1", port=port, security="none", connect_timeout_ms=300, timeout_ms=300)
        )
        outcome = bare(send_one(provider))
        provider.close()
    assert outcome == Transient(Scope.PROVIDER, "smtp_connect_timeout", timed_out=True)

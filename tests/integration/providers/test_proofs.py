"""What each adapter finds out about a message whose outcome nobody knows. CHES is tried in the prover's own tests."""

import base64
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from shared.domain.outcome import Ambiguous, Outcome, Permanent, Transient
from shared.domain.proof import Absent, Pending, Proof, Refused, Taken, Unprovable, was_asked
from shared.domain.receipts import ReceiptStatus
from tests.integration.providers.messages import DELIVERY_ID, email_message, send_all, sms_message
from tests.support.scripted_http import CLOSE, HANG, RESET, ScriptedHttp, Step, answer, free_port, scripted_http
from tests.support.scripted_smtp import ACCEPT_THEN, scripted_smtp
from workers.providers.acs import AcsConfig, AcsProvider
from workers.providers.protocol import Message, Provider, SmsMessage
from workers.providers.sandbox import Kept, SandboxConfig, SandboxProvider, StoreAway
from workers.providers.smtp import SmtpProvider
from workers.providers.smtp_session import SmtpConfig
from workers.providers.twilio import TwilioConfig, TwilioProvider

LIST = "/2010-04-01/Accounts/AC0001/Messages.json"
SENDER = "+16045550100"


def prove_all(provider: Provider, messages: Sequence[Message]) -> list[Proof]:
    """Look, hold the adapter to one answer per message, and give the proofs in the messages' order."""
    answered: dict[int, Proof] = {}
    for found in provider.prove(messages):
        if found is not None:
            assert found[0] not in answered, "a message was answered twice"
            answered[found[0]] = found[1]
    return [answered[index] for index in range(len(messages))]


@pytest.fixture
def server() -> Iterator[ScriptedHttp]:
    with scripted_http() as server:
        yield server


def acs(server_url: str, *, reports: bool = True) -> AcsProvider:
    key = base64.b64encode(b"0123456789abcdef").decode()
    return AcsProvider(
        AcsConfig(
            endpoint=server_url,
            access_key=key,
            sender="+18335550100",
            timeout_ms=500,
            connect_timeout_ms=300,
            reports=reports,
        )
    )


def called(ago_s: float, **more: str) -> SmsMessage:
    """By the ledger's clock, which is an hour ahead of this machine's."""
    began = datetime.now(UTC) + timedelta(hours=1) - timedelta(seconds=ago_s)
    return sms_message(first_attempt_at=began, age_s=ago_s, **more)  # type: ignore[arg-type]


def item(message: SmsMessage, status: int, **more: object) -> Step:
    return answer(202, {"value": [{"to": message.to, "httpStatusCode": status, **more}]})


def test_a_repeat_carries_the_id_and_the_first_sent_time_of_the_call(server: ScriptedHttp) -> None:
    message = called(30)
    server.always("/sms", item(message, 202, messageId="m1"))
    provider = acs(server.url)
    send_all(provider, [message])
    assert prove_all(provider, [message]) == [Taken("m1", "Azure gave the first answer again")]
    first, repeat = server.posts("/sms")
    assert first.body == repeat.body
    [recipient] = repeat.json()["smsRecipients"]
    assert recipient["repeatabilityRequestId"] == str(message.key)
    assert recipient["repeatabilityFirstSent"] == format_datetime(message.first_attempt_at, usegmt=True)
    provider.close()


def test_after_the_window_nothing_is_repeated_since_that_would_be_another_message(server: ScriptedHttp) -> None:
    inside, outside = called(230), called(241, to="+16045550102")
    server.always("/sms", item(inside, 202, messageId="m1"))
    provider = acs(server.url)
    taken, waiting = prove_all(provider, [inside, outside])
    assert isinstance(taken, Taken)
    assert isinstance(waiting, Pending)
    assert (was_asked(taken), was_asked(waiting)) == (True, False)
    [request] = server.posts("/sms")
    assert b"0102" not in request.body
    provider.close()


ACS_ANSWERS: list[tuple[str, dict[str, object], Proof | type[Proof]]] = [
    ("bad number", {"httpStatusCode": 400, "errorMessage": "Invalid To phone number format"}, Refused),
    ("server error", {"httpStatusCode": 503}, Refused),
    ("rejected id", {"httpStatusCode": 400, "repeatabilityResult": "rejected"}, Pending),
    ("window over", {"httpStatusCode": 412, "repeatabilityResult": "rejected"}, Pending),
    ("in progress", {"httpStatusCode": 409}, Pending("acs_item_409: ", 10.0)),
    ("too fast", {"httpStatusCode": 429}, Pending),
    ("no rights", {"httpStatusCode": 401}, Pending),
    ("unreadable", {"httpStatusCode": "x"}, Pending),
]


@pytest.mark.parametrize(("name", "said", "expected"), ACS_ANSWERS, ids=[case[0] for case in ACS_ANSWERS])
def test_what_azure_says_of_the_recipient_counts(
    server: ScriptedHttp, name: str, said: dict[str, object], expected: Proof | type[Proof]
) -> None:
    message = called(30)
    server.always("/sms", answer(202, {"value": [{"to": message.to, **said}]}))
    provider = acs(server.url)
    [proof] = prove_all(provider, [message])
    assert proof == expected or (isinstance(expected, type) and isinstance(proof, expected))
    if isinstance(proof, Refused):
        assert isinstance(proof.outcome, Permanent | Transient)
    provider.close()


@pytest.mark.parametrize(
    "step",
    [answer(400), answer(401), answer(500), answer(503), answer(504), [CLOSE], [RESET], [HANG], answer(202, b"{")],
    ids=str,
)
def test_what_becomes_of_the_repeat_itself_says_nothing_of_the_call(server: ScriptedHttp, step: Step) -> None:
    server.always("/sms", step)
    provider = acs(server.url)
    [proof] = prove_all(provider, [called(30)])
    assert isinstance(proof, Pending)
    provider.close()


def test_a_repeat_that_reaches_nobody_says_nothing_of_the_call() -> None:
    provider = acs(f"http://127.0.0.1:{free_port()}")
    [proof] = prove_all(provider, [called(30)])
    assert isinstance(proof, Pending)
    assert proof.failed
    provider.close()


def test_the_tag_of_a_request_names_its_send_and_rows_and_rows_far_apart_go_apart(server: ScriptedHttp) -> None:
    send = DELIVERY_ID.rpartition(".")[0]
    messages = [sms_message(f"+160455501{n:02}", delivery_id=f"{send}.{row}") for n, row in enumerate((7, 3, 5000))]
    messages.append(sms_message("+16045550190", delivery_id="0190a1b2-0000-7000-8000-000000000002.4"))
    server.always("/sms", answer(202, {"value": []}))
    provider = acs(server.url)
    send_all(provider, messages)
    tags = [request.json()["smsSendOptions"]["tag"] for request in server.posts("/sms")]
    assert sorted(tags) == [f"{send}.3-7", f"{send}.5000-5000", "0190a1b2-0000-7000-8000-000000000002.4-4"]
    provider.close()


def test_without_reports_nothing_is_waited_for_after_the_window(server: ScriptedHttp) -> None:
    with_reports, without = acs(server.url), acs(server.url, reports=False)
    assert (with_reports.resolution.wait_s, without.resolution.wait_s) == (600.0, 240.0)
    with_reports.close()
    without.close()


@pytest.fixture
def twilio(server: ScriptedHttp) -> Iterator[TwilioProvider]:
    provider = TwilioProvider(
        TwilioConfig(account_sid="AC0001", auth_token="t0ken", sender=SENDER, base_url=server.url, timeout_ms=500)
    )
    yield provider
    provider.close()


def listed(message: SmsMessage, *, after_s: float = 1.0, **more: object) -> dict[str, object]:
    created = message.first_attempt_at + timedelta(seconds=after_s)
    return {
        "sid": "SM7",
        "to": message.to,
        "from": SENDER,
        "body": message.text,
        "status": "delivered",
        "date_created": format_datetime(created),
        **more,
    }


def test_a_message_in_twilios_list_was_taken(server: ScriptedHttp, twilio: TwilioProvider) -> None:
    message = called(660)
    others = [
        listed(message, body="Another text"),
        listed(message, **{"from": "+16045550111"}),
        listed(message, to="+16045550199"),
        listed(message, after_s=-40),
        listed(message, after_s=62),
        {"sid": "SM9"},
        None,
    ]
    server.always(LIST, answer(200, {"messages": [*others, listed(message)]}))
    found = Taken("SM7", "Twilio's list has it", ReceiptStatus.DELIVERED, by_likeness=True)
    assert prove_all(twilio, [message]) == [found]
    [request] = server.posts(LIST)
    day = message.first_attempt_at.date().isoformat()
    assert request.method == "GET"
    assert request.path.partition("?")[2] == f"To=%2B16045550101&DateSent%3E={day}&PageSize=100"
    assert request.headers["authorization"].startswith("Basic ")


def test_a_message_of_a_messaging_service_is_told_by_the_service(server: ScriptedHttp) -> None:
    provider = TwilioProvider(
        TwilioConfig(account_sid="AC0001", auth_token="t", messaging_service_sid="MG1", base_url=server.url)
    )
    message = called(660)
    found = listed(message, messaging_service_sid="MG1", **{"from": "+16045550177"}, status="failed")
    server.always(LIST, answer(200, {"messages": [found]}))
    [proof] = prove_all(provider, [message])
    assert isinstance(proof, Taken)
    assert (proof.ref, proof.receipt) == ("SM7", ReceiptStatus.FAILED)
    provider.close()


@pytest.mark.parametrize("count", [0, 2])
def test_none_like_it_or_several_prove_nothing(server: ScriptedHttp, twilio: TwilioProvider, count: int) -> None:
    message = called(660)
    server.always(LIST, answer(200, {"messages": [listed(message)] * count}))
    [proof] = prove_all(twilio, [message])
    assert isinstance(proof, Unprovable)
    assert proof.evidence == {"listed": str(count), "alike": str(count)}


@pytest.mark.parametrize(
    "step", [answer(500), answer(401), answer(429), answer(200, b"{"), answer(200, {}), [RESET], [CLOSE]], ids=str
)
def test_a_list_that_cannot_be_read_proves_nothing_yet(
    server: ScriptedHttp, twilio: TwilioProvider, step: Step
) -> None:
    server.always(LIST, step)
    [proof] = prove_all(twilio, [called(660)])
    assert isinstance(proof, Pending)


def test_an_answer_lost_after_the_dot_names_stage_relay_and_message_id() -> None:
    with scripted_smtp() as relay:
        relay.once("dot", [ACCEPT_THEN, CLOSE])
        provider = SmtpProvider(
            SmtpConfig(
                host="127.0.0.1",
                port=relay.port,
                security="none",
                connect_timeout_ms=400,
                timeout_ms=400,
                final_dot_timeout_ms=400,
                message_id_domain="mail.example.com",
            )
        )
        message = email_message()
        [outcome] = send_all(provider, [message])
        assert isinstance(outcome, Ambiguous)
        evidence = {"relay": f"127.0.0.1:{relay.port}", "message_id": str(message.key)}
        assert outcome.evidence == {"stage": "dot", "reason": outcome.detail, **evidence}
        assert f"Message-ID: <{message.key}@mail.example.com>".encode() in relay.taken[0].content
        [proof] = prove_all(provider, [message])
        assert isinstance(proof, Unprovable)
        assert proof.evidence == evidence
        assert len(relay.taken) == 1
        provider.close()


def test_the_evidence_of_a_message_whose_sender_is_no_address_lacks_an_id() -> None:
    provider = SmtpProvider(SmtpConfig(host="127.0.0.1", port=1, security="none"))
    [proof] = prove_all(provider, [email_message(sender="nobody")])
    assert isinstance(proof, Unprovable)
    assert list(proof.evidence) == ["relay"]
    provider.close()


def test_the_sandbox_without_its_store_proves_nothing_yet() -> None:
    def away(_: object) -> Kept:
        raise StoreAway

    provider = SandboxProvider(SandboxConfig(), keep=lambda _: None, find=away)
    [proof] = prove_all(provider, [email_message()])
    assert isinstance(proof, Pending)


def test_the_sandbox_looks_for_a_lost_message_and_does_not_find_it() -> None:
    kept: list[Message] = []

    def find(keys: object) -> Kept:
        return Kept(frozenset(message.key for message in kept), None)

    provider = SandboxProvider(SandboxConfig(), keep=kept.extend, find=find)
    lost, ambiguous = email_message("lost@example.com"), email_message("ambiguous@example.com")
    outcomes: list[Outcome] = send_all(provider, [lost, ambiguous])
    assert all(isinstance(outcome, Ambiguous) for outcome in outcomes)
    absent, taken = prove_all(provider, [lost, ambiguous])
    assert isinstance(absent, Absent)
    assert taken == Taken(f"sandbox-{ambiguous.key}", "the sandbox has it")

"""Twilio, code by code."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from shared.domain.outcome import (
    Accepted,
    Ambiguous,
    Configuration,
    Outcome,
    Permanent,
    Scope,
    Suppressed,
    Throttled,
    Transient,
)
from tests.integration.providers.messages import DELIVERY_ID, send_all, sms_message
from tests.support.scripted_http import (
    CLOSE,
    HANG,
    RESET,
    ScriptedHttp,
    Step,
    answer,
    form,
    free_port,
    scripted_http,
)
from workers.providers.twilio import TwilioConfig, TwilioProvider

PATH = "/2010-04-01/Accounts/AC0001/Messages.json"


@pytest.fixture
def server() -> Iterator[ScriptedHttp]:
    with scripted_http() as server:
        server.always(PATH, answer(201, {"sid": "SM1", "status": "queued"}))
        yield server


@pytest.fixture
def config(server: ScriptedHttp) -> TwilioConfig:
    return TwilioConfig(
        account_sid="AC0001",
        auth_token="t0ken",
        sender="+16045550100",
        status_callback_url="https://tidings.example.com/api/v1/receipts/twilio",
        base_url=server.url,
        timeout_ms=500,
        connect_timeout_ms=300,
    )


@pytest.fixture
def provider(config: TwilioConfig) -> Iterator[TwilioProvider]:
    provider = TwilioProvider(config)
    yield provider
    provider.close()


def test_a_message_is_one_form_post_whose_callback_carries_our_key(
    server: ScriptedHttp, provider: TwilioProvider
) -> None:
    message = sms_message(text="Été & co + 1")
    assert send_all(provider, [message]) == [Accepted("SM1")]
    (request,) = server.received
    assert form(request) == {
        "To": "+16045550101",
        "From": "+16045550100",
        "Body": "Été & co + 1",
        "StatusCallback": f"https://tidings.example.com/api/v1/receipts/twilio?delivery={DELIVERY_ID}&key={message.key}",
    }
    assert request.headers["authorization"] == "Basic QUMwMDAxOnQwa2Vu"
    assert request.headers["content-type"] == "application/x-www-form-urlencoded"


def test_without_a_public_address_no_callback_is_asked_for(server: ScriptedHttp, config: TwilioConfig) -> None:
    provider = TwilioProvider(replace(config, status_callback_url=None))
    send_all(provider, [sms_message()])
    provider.close()
    assert "StatusCallback" not in form(server.received[0])


def test_a_messaging_service_stands_in_for_the_number_unless_the_message_names_one(
    server: ScriptedHttp, config: TwilioConfig
) -> None:
    provider = TwilioProvider(replace(config, sender=None, messaging_service_sid="MG1"))
    send_all(provider, [sms_message()])
    send_all(provider, [sms_message(sender="+16045550177")])
    provider.close()
    first, second = (form(r) for r in server.received)
    assert (first["MessagingServiceSid"], "From" in first) == ("MG1", False)
    assert (second["From"], "MessagingServiceSid" in second) == ("+16045550177", False)


def error(status: int, code: int, headers: dict[str, str] | None = None) -> Step:
    return answer(status, {"code": code, "message": "Why", "status": status}, headers)


def rows() -> Iterator[tuple[int, int, Outcome]]:
    for code, status in {20003: 401, 20005: 401, 20006: 403, 20008: 403, 20404: 404, 30002: 400}.items():
        yield status, code, Configuration(Scope.PROVIDER, f"twilio_{code}", "Why")
    for code in (21212, 21603, 21606, 21703, 21704, 21705, 21709, 21712):
        yield 400, code, Configuration(Scope.SENDER, f"twilio_{code}", "Why")
    for code in (21211, 21214, 21217, 21401, 21421, 21612, 21614, 21635):
        yield 400, code, Permanent(Scope.RECIPIENT, f"twilio_{code}", "Why")
    for code in (21408, 21608):
        yield 400, code, Permanent(Scope.RECIPIENT, f"twilio_{code}_account_restriction", "Why")
    for code in (21602, 21617, 21618, 21620, 21623, 21654, 21655, 21656, 21657, 21658):
        yield 400, code, Permanent(Scope.MESSAGE, f"twilio_{code}", "Why")
    yield 400, 21610, Suppressed("twilio_21610", "Why")
    yield 429, 20429, Throttled("twilio_20429", "Why")
    yield 400, 21611, Throttled("twilio_21611", "Why", scope=Scope.SENDER)
    yield 429, 63038, Throttled("twilio_63038", "Why", retry_after_s=3_600.0)
    yield 503, 20503, Transient(Scope.PROVIDER, "twilio_20503", "Why")
    yield 500, 20500, Ambiguous("twilio_20500", "Why", provider_failed=True)
    yield 400, 29999, Permanent(Scope.MESSAGE, "twilio_29999", "Why")
    yield 404, 29998, Configuration(Scope.PROVIDER, "twilio_29998", "Why")


@pytest.mark.parametrize(
    ("status", "code", "expected"), list(rows()), ids=lambda value: str(value) if isinstance(value, int) else ""
)
def test_each_code_has_its_outcome(
    server: ScriptedHttp, provider: TwilioProvider, status: int, code: int, expected: Outcome
) -> None:
    server.always(PATH, error(status, code))
    outcome = send_all(provider, [sms_message()])[0]
    assert (replace(outcome, evidence={}) if isinstance(outcome, Ambiguous) else outcome) == expected
    assert len(server.received) == 1


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        (answer(401), Configuration),
        (answer(403), Configuration),
        (answer(404), Configuration),
        (answer(429), Throttled),
        (answer(500), Ambiguous),
        (answer(502), Ambiguous),
        (answer(503), Transient),
        (answer(504), Ambiguous),
        (answer(400, [1, 2]), Permanent),
        ([HANG], Ambiguous),
        ([RESET], Ambiguous),
        ([CLOSE], Ambiguous),
        ([b"junk\r\n\r\n", CLOSE], Ambiguous),
        (answer(201, b"junk"), Accepted),
    ],
    ids=str,
)
def test_answers_without_a_code_fall_back_to_the_status(
    server: ScriptedHttp, provider: TwilioProvider, step: Step, kind: type
) -> None:
    send_all(provider, [sms_message()])
    server.once(PATH, step)
    assert isinstance(send_all(provider, [sms_message("+16045550102")])[0], kind)
    assert server.count_by(lambda r: form(r)["To"], PATH)["+16045550102"] == 1


def test_retry_after_is_passed_on(server: ScriptedHttp, provider: TwilioProvider) -> None:
    server.always(PATH, error(429, 20429, {"Retry-After": "4"}))
    outcome = send_all(provider, [sms_message()])[0]
    assert isinstance(outcome, Throttled)
    assert outcome.retry_after_s == 4.0


def test_a_refused_connection_is_transient(config: TwilioConfig) -> None:
    provider = TwilioProvider(replace(config, base_url=f"http://127.0.0.1:{free_port()}"))
    assert isinstance(send_all(provider, [sms_message()])[0], Transient)
    provider.close()

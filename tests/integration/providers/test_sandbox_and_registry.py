"""The sandbox's answers on request, and which provider comes out of which settings."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from shared.accounts import credential_of, missing_settings, resolution_of
from shared.domain.ids import delivery_key, parse_delivery_id
from shared.domain.outcome import (
    Accepted,
    Ambiguous,
    Configuration,
    Permanent,
    Scope,
    Suppressed,
    Throttled,
    Transient,
)
from shared.settings import Settings
from tests.integration.providers.messages import DELIVERY_ID, email_message, send_all, sms_message
from workers.providers.protocol import Message
from workers.providers.registry import build_provider
from workers.providers.sandbox import Kept, SandboxConfig, SandboxProvider, StoreAway


def find_nothing(_: Sequence[UUID]) -> Kept:
    return Kept(frozenset(), None)


ASKED = {
    "permanent": Permanent,
    "suppressed": Suppressed,
    "transient": Transient,
    "throttled": Throttled,
    "ambiguous": Ambiguous,
    "greylisted": Transient,
    "configuration": Configuration,
    "flaky": Transient,
    "lost": Ambiguous,
    "anything": Accepted,
}


def test_the_address_asks_for_the_outcome_and_only_what_may_be_taken_is_kept() -> None:
    kept: list[Message] = []
    provider = SandboxProvider(SandboxConfig(), keep=kept.extend, find=find_nothing)
    mails = [email_message(f"{name}+tag@example.com") for name in ASKED]
    texts = [sms_message(f"+1604555{digits:04}") for digits in (*range(1, 10), 9999)]
    for messages in (mails, texts):
        outcomes = send_all(provider, messages)
        assert [type(one) for one in outcomes] == list(ASKED.values())
        for again in (messages[7], messages[8]):
            assert send_all(provider, [again]) == [Accepted(f"sandbox-{again.key}")]
    assert kept == [*(mails[n] for n in (4, 9, 7, 8)), *(texts[n] for n in (4, 9, 7, 8))]


@pytest.mark.parametrize("make", [lambda: email_message("mended@example.com"), lambda: sms_message("+16045550010")])
def test_an_address_that_is_mended_is_refused_until_it_is_requeued(make: Callable[[], Message]) -> None:
    kept: list[Message] = []
    provider = SandboxProvider(SandboxConfig(), keep=kept.extend, find=find_nothing)
    first, requeued = (replace(make(), key=delivery_key(*parse_delivery_id(DELIVERY_ID), epoch)) for epoch in (0, 1))
    for _ in range(2):
        assert [type(outcome) for outcome in send_all(provider, [first])] == [Permanent]
    assert send_all(provider, [requeued]) == [Accepted(f"sandbox-{requeued.key}")]
    assert kept == [requeued]


@pytest.mark.parametrize("asked", [name for name in ASKED if name != "anything"])
def test_each_message_of_a_window_is_a_call_of_its_own(asked: str) -> None:
    provider = SandboxProvider(SandboxConfig(), keep=keep_nothing, find=find_nothing)
    outcomes = send_all(provider, [replace(email_message(f"{asked}@example.com"), key=uuid4()) for _ in range(5)])
    assert outcomes[0] == outcomes[4]
    assert len({id(outcome) for outcome in outcomes}) == 5


def test_the_latency_is_waited_once_for_a_whole_window() -> None:
    provider = SandboxProvider(SandboxConfig(latency_ms=200), keep=lambda _: None, find=find_nothing)
    started = time.monotonic()
    answers = list(provider.send([email_message() for _ in range(50)]))
    assert 0.2 <= time.monotonic() - started < 0.6
    assert answers.count(None) >= 3


def settings(**values: object) -> Settings:
    required = {"database_url": "postgresql://db.example.com/x", "redis_url": "redis://redis.example.com"}
    return Settings(**{**required, **values})  # type: ignore[arg-type]  # pydantic checks them


READY: dict[str, dict[str, object]] = {
    "sandbox": {},
    "ches": {
        "ches_base_url": "https://ches.example.com/api/v1",
        "ches_token_url": "https://login.example.com/token",
        "ches_client_id": "id",
        "ches_client_secret": "s3cret",
    },
    "smtp": {"smtp_host": "relay.example.com"},
    "twilio": {"twilio_account_sid": "AC1", "twilio_auth_token": "s3cret", "twilio_from": "+16045550100"},
    "acs": {"acs_endpoint": "https://a.example.com", "acs_access_key": "czNjcmV0", "acs_from": "+18335550100"},
}


def test_a_sandbox_without_its_store_takes_nothing_and_leaves_nothing_in_doubt() -> None:
    def keep(_: Sequence[Message]) -> None:
        raise StoreAway

    provider = SandboxProvider(SandboxConfig(), keep=keep, find=find_nothing)
    asked = [email_message(f"{name}@example.com") for name in ("anna", "ambiguous", "permanent")]
    assert [type(outcome) for outcome in send_all(provider, asked)] == [Transient, Transient, Permanent]


def keep_nothing(_: Sequence[Message]) -> None: ...


@pytest.mark.parametrize("name", list(READY))
def test_a_provider_with_all_its_settings_is_built(name: str) -> None:
    ready = settings(**READY[name])
    provider = build_provider(name, ready, keep=keep_nothing, find=find_nothing)
    provider.close()
    assert provider.name == name
    assert missing_settings(name, ready) == ()
    assert "s3cret" not in provider.credential
    assert provider.credential == credential_of(ready, name)
    assert provider.resolution == resolution_of(ready, name)


@pytest.mark.parametrize(
    ("name", "left_out"), [(name, key) for name, values in READY.items() for key in values], ids=str
)
def test_each_missing_setting_is_named_and_every_message_waits(name: str, left_out: str) -> None:
    lacking = settings(**{key: value for key, value in READY[name].items() if key != left_out})
    (missing,) = missing_settings(name, lacking)
    assert left_out.upper() in missing
    provider = build_provider(name, lacking, keep=keep_nothing, find=find_nothing)
    outcomes = send_all(provider, [email_message(), sms_message()])
    assert outcomes == [Configuration(Scope.PROVIDER, "not_configured", f"not set: {missing}")] * 2
    assert provider.name == name
    assert provider.credential == credential_of(lacking, name)


def test_without_a_choice_of_provider_every_message_waits() -> None:
    provider = build_provider("none", settings(), keep=keep_nothing, find=find_nothing)
    (outcome,) = send_all(provider, [email_message()])
    assert isinstance(outcome, Configuration)
    assert outcome.code == "not_configured"


@pytest.mark.parametrize(
    ("name", "changes", "missing"),
    [
        ("smtp", {"smtp_username": "user"}, ("SMTP_PASSWORD",)),
        ("twilio", {"twilio_from": None, "twilio_messaging_service_sid": "MG1"}, ()),
    ],
)
def test_settings_that_depend_on_each_other(name: str, changes: dict[str, object], missing: tuple[str, ...]) -> None:
    assert missing_settings(name, settings(**{**READY[name], **changes})) == missing


def test_two_accounts_never_share_a_credential() -> None:
    names = {
        build_provider(
            "ches", settings(**{**READY["ches"], "ches_client_id": client}), keep=keep_nothing, find=find_nothing
        ).credential
        for client in ("one", "two")
    }
    assert len(names) == 2

"""What becomes of a digest, its words for each kind of channel, its signature, and where it may go."""

import base64
import hashlib
import hmac
import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from shared.domain import digest_bodies, webhook_signature
from shared.domain.digest_channels import ChannelError, read_filter, read_setup, topic_of
from shared.domain.digest_retry import judge
from shared.domain.digests import DIGEST_CAP, ChannelType, Digest, DigestStatus, Item, NotificationStatus, Severity
from shared.domain.endpoints import EndpointError, host_list, is_public, read_endpoint
from shared.domain.merge import compile_template
from shared.domain.outcome import (
    Accepted,
    Ambiguous,
    Configuration,
    NotAttempted,
    Outcome,
    Permanent,
    Scope,
    Throttled,
    Transient,
)
from shared.domain.retry import RetryPolicy

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
POLICY = RetryPolicy(jitter_share=0.0)
ID = UUID("018f0000-0000-7000-8000-000000000001")


def item(number: int = 1, *, attempts: int = 0, severity: Severity = Severity.HIGH, **more: Any) -> Item:
    subject = more.pop("subject", f"thing {number}")
    return Item(
        number, f"k{number}", "update", subject, severity, more.pop("details", None), None, NOW, attempts, NOW, **more
    )


def digest(*items: Item, left: int = 0) -> Digest:
    return Digest(ID, "ops", NOW, items or (item(),), left)


FAILURES: list[Outcome] = [
    Transient(Scope.PROVIDER, "webhook_503"),
    Transient(Scope.PROVIDER, "connect"),
    Permanent(Scope.MESSAGE, "webhook_400"),
]


@pytest.mark.parametrize("outcome", FAILURES)
@pytest.mark.parametrize(("attempts", "minutes"), [(0, 5), (1, 10), (2, 20), (3, 40)])
def test_every_failure_uses_an_attempt_up_and_the_wait_doubles(outcome: Outcome, attempts: int, minutes: int) -> None:
    judged = judge(outcome, [item(attempts=attempts)], POLICY, now=NOW)
    (fate,) = judged.fates
    assert judged.status is DigestStatus.FAILED
    assert (fate.status, fate.attempt_count) == (NotificationStatus.RETRYING, attempts + 1)
    assert fate.next_attempt_at == NOW + timedelta(minutes=minutes)


@pytest.mark.parametrize("outcome", [*FAILURES, Ambiguous("timeout")])
def test_the_last_attempt_dead_letters_and_clears_the_next(outcome: Outcome) -> None:
    judged = judge(outcome, [item(attempts=4)], POLICY, now=NOW)
    assert judged.status is DigestStatus.FAILED
    assert [(fate.status, fate.attempt_count, fate.next_attempt_at) for fate in judged.fates] == [
        (NotificationStatus.DEAD_LETTERED, 5, None)
    ]


def test_a_wish_to_wait_longer_is_heeded() -> None:
    judged = judge(Transient(Scope.PROVIDER, "webhook_503", retry_after_s=900), [item()], POLICY, now=NOW)
    assert judged.fates[0].next_attempt_at == NOW + timedelta(minutes=15)


@pytest.mark.parametrize(
    ("outcome", "waits_s", "refused"),
    [
        (Throttled("webhook_429", retry_after_s=120), 120, False),
        (Throttled("webhook_429"), 30, False),
        (Configuration(Scope.PROVIDER, "webhook_404"), None, True),
        (NotAttempted("draining"), None, False),
    ],
)
def test_what_is_no_failure_of_theirs_changes_no_item(outcome: Outcome, waits_s: float | None, refused: bool) -> None:
    judged = judge(outcome, [item(attempts=4)], POLICY, now=NOW)
    assert (judged.status, judged.fates, judged.waits_s, judged.refused) == (DigestStatus.FAILED, [], waits_s, refused)
    again = judge(outcome, [item(attempts=4)], POLICY, now=NOW, maybe_known=True)
    assert (again.status, again.fates, again.waits_s, again.refused) == (DigestStatus.FROZEN, [], waits_s, refused)


def test_what_may_have_been_taken_stays_together_until_the_longest_wait_is_over() -> None:
    judged = judge(Ambiguous("timeout"), [item(1), item(2, attempts=2), item(3, attempts=4)], POLICY, now=NOW)
    assert judged.status is DigestStatus.FROZEN
    assert judged.next_attempt_at == NOW + timedelta(minutes=20)
    assert [fate.next_attempt_at for fate in judged.fates] == [judged.next_attempt_at, judged.next_attempt_at, None]


@pytest.mark.parametrize("outcome", FAILURES)
def test_a_frozen_set_believes_no_later_refusal(outcome: Outcome) -> None:
    assert judge(outcome, [item()], POLICY, now=NOW, maybe_known=True).status is DigestStatus.FROZEN


def test_what_was_taken_is_told() -> None:
    judged = judge(Accepted(None), [item(attempts=3)], POLICY, now=NOW, maybe_known=True)
    assert judged.status is DigestStatus.SENT
    assert [(fate.status, fate.attempt_count) for fate in judged.fates] == [(NotificationStatus.SENT, 4)]


def test_a_signature_is_what_the_standard_says() -> None:
    secret = "whsec_" + base64.b64encode(b"k" * 32).decode()
    expected = base64.b64encode(hmac.digest(b"k" * 32, b"msg_1.1614265330.{}", hashlib.sha256)).decode()
    assert webhook_signature.sign(secret, id_="msg_1", at_s=1614265330, body=b"{}") == f"v1,{expected}"
    # The example of the specification, and of its libraries.
    known = webhook_signature.sign(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        id_="msg_p5jXN8AQM9LWM0D4loKWxJek",
        at_s=1614265330,
        body=b'{"test": 2432232314}',
    )
    assert known == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize(
    "secret", ["", "whsec_", "whsec_!!", "whsec_" + base64.b64encode(b"short").decode(), "AAAA" * 10]
)
def test_a_bad_signing_secret_is_refused(secret: str) -> None:
    with pytest.raises(webhook_signature.SecretError):
        webhook_signature.key_of(secret)
    assert len(webhook_signature.key_of(webhook_signature.new_secret())) == 32


def test_a_webhook_says_all_and_leaves_details_out_where_they_would_be_too_much() -> None:
    small = json.loads(digest_bodies.webhook_document(digest(item(1, details={"a": 1}), left=3)))
    assert small["data"]["items"][0]["details"] == {"a": 1}
    assert (small["data"]["id"], small["data"]["left"]) == (str(ID), 3)
    many = [item(n, details={"text": "x" * 3_000}) for n in range(DIGEST_CAP)]
    large = digest_bodies.webhook_document(digest(*many))
    assert len(large) < 20_000
    assert all(one["details_left_out"] for one in json.loads(large)["data"]["items"])


@pytest.mark.parametrize("subject", ["x" * 300, "ü" * 300, "𝄞" * 300, "&<>" * 100])
def test_every_item_of_a_full_digest_is_named_within_the_limits_of_each_channel(subject: str) -> None:
    full = digest(*(item(n, subject=f"{n:02} {subject}") for n in range(DIGEST_CAP)), left=1_000)
    ntfy = json.loads(digest_bodies.ntfy_document(full, "t"))
    assert len(ntfy["message"].encode()) <= 4_096
    slack = json.loads(digest_bodies.slack_document(full))
    assert len(slack["blocks"]) <= 50
    assert all(len(block["text"]["text"]) <= 3_000 for block in slack["blocks"])
    teams = digest_bodies.teams_document(full)
    assert len(teams) <= 28_000
    said = {
        "ntfy": ntfy["message"],
        "gotify": json.loads(digest_bodies.gotify_document(full))["message"],
        "slack": "\n".join(block["text"]["text"] for block in slack["blocks"]),
        "teams": teams.decode(),
    }
    for name, text in said.items():
        assert all(f"{n:02} " in text for n in range(DIGEST_CAP)), name
        assert "1,000 more" in text, name


def test_what_comes_from_outside_is_never_markup() -> None:
    evil = digest(item(subject="<!channel> [x](http://e) & {{ channel }} <b>"))
    slack = json.loads(digest_bodies.slack_document(evil))
    assert "<" not in json.dumps(slack["blocks"]).replace("\\u003c", "")
    runs = json.loads(digest_bodies.teams_document(evil))["attachments"][0]["content"]["body"]
    assert {row["type"] for row in runs} == {"RichTextBlock"}
    mail = digest_bodies.email_digest(evil)
    html = compile_template(mail.html, kind="html").render(dict(mail.params))
    assert "&lt;!channel&gt;" in html
    assert "<b>" not in html
    assert "{{ channel }}" in compile_template(mail.text, kind="text").render(dict(mail.params))


def test_the_title_counts_and_names_the_worst() -> None:
    assert digest(item(severity=Severity.INFO)).title == "1 event"
    assert digest(item()).title == "1 event, high"
    assert digest(item(1), item(2, severity=Severity.CRITICAL), item(3)).title == "3 events, 1 of them critical"
    assert digest_bodies.line_of(item(over=True)).endswith("(over by now)")


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "10.1.2.3", "192.168.0.1", "172.16.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
     "255.255.255.255", "::1", "::", "fe80::1%eth0", "fd00::1", "::ffff:10.0.0.1", "::ffff:169.254.169.254",
     "64:ff9b::a00:1", "2002:0a00:0001::1", "ff02::1", "not an address", "192.0.2.1", "2001:db8::1",
     "168.63.129.16", "::ffff:168.63.129.16", "::127.0.0.1", "::5db8:d822", "fec0::1", "feff::1", "5f00::1"],
)  # fmt: skip
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address", ["93.184.216.34", "2606:2800:220:1::1", "64:ff9b::5db8:d822", "::ffff:93.184.216.34"]
)
def test_addresses_that_are_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "url",
    ["", "example.com/x", "http://example.com/x", "ftp://example.com/", "https://", "https://user@example.com/",
     "https://u:p@example.com/", "https://example.com/#x", "https://exa mple.com/", "https://example.com:99999/",
     "https://127.0.0.1/", "https://[::1]/", "https://169.254.169.254/latest", "https://example.com/" + "x" * 2_000],
)  # fmt: skip
def test_addresses_a_channel_may_not_have(url: str) -> None:
    with pytest.raises(EndpointError) as caught:
        read_endpoint(url)
    assert "p@" not in str(caught.value)


def test_hosts_that_are_named_may_be_plain_and_private() -> None:
    hosts = host_list("Hooks.Internal [::1] 10.0.0.5")
    for url in ("http://hooks.internal/x", "http://[::1]:8080/x", "http://10.0.0.5/"):
        assert read_endpoint(url, plain_http=hosts, private=hosts).url == url
    shown = read_endpoint("https://hooks.slack.com/services/T0/B0/secret").shown
    assert shown == "https://hooks.slack.com/…"


def test_all_faults_of_a_channel_are_told_without_its_secrets() -> None:
    given = {
        "url": "https://example.com/?token=s3cret",
        "signing_secret": "s3cret",
        "auth_header": "s3cret",
        "to": ["x"],
    }
    with pytest.raises(ChannelError) as caught:
        read_setup(ChannelType.WEBHOOK, given, plain_http=(), private=())
    assert set(caught.value.faults) == {"signing_secret", "auth_header", "to"}
    assert "s3cret" not in str(caught.value)
    with pytest.raises(ChannelError) as caught:
        read_setup(ChannelType.GOTIFY, {}, plain_http=(), private=())
    assert set(caught.value.faults) == {"url", "token"}


@pytest.mark.parametrize(
    ("type_", "field", "short", "long"),
    [
        (ChannelType.NTFY, "token", "tk_12", "tk_123"),
        (ChannelType.WEBHOOK, "auth_header", "X-Key:12345", "X-Key:123456"),
        (ChannelType.WEBHOOK, "auth_header", "Authorization: Bearer 12345", "Authorization: Bearer 123456"),
        (
            ChannelType.WEBHOOK,
            "auth_header",
            "Authorization: Token token=12345,a=b",
            "Authorization: Token token=123456",
        ),
    ],
)
def test_a_secret_that_is_too_short_to_be_kept_out_of_answers_is_refused(
    type_: ChannelType, field: str, short: str, long: str
) -> None:
    with pytest.raises(ChannelError) as caught:
        read_setup(type_, {field: short}, plain_http=(), private=(), partial=True)
    assert list(caught.value.faults) == [field]
    assert "6 characters or more" in caught.value.faults[field]
    assert "12" not in str(caught.value)
    assert read_setup(type_, {field: long}, plain_http=(), private=(), partial=True).secret == {field: long}


def test_what_may_be_shown_of_a_channel_holds_no_secret() -> None:
    url = "https://ntfy.sh/my-secret-topic"
    setup = read_setup(ChannelType.NTFY, {"url": url, "token": "tk_secret_1"}, plain_http=(), private=())
    assert setup.config == {"endpoint": "https://ntfy.sh/…"}
    assert "secret" not in repr(setup)
    assert topic_of(url) == ("https://ntfy.sh", "my-secret-topic")
    with pytest.raises(ChannelError):
        read_setup(ChannelType.NTFY, {"url": "https://ntfy.sh/"}, plain_http=(), private=())
    mail = read_setup(
        ChannelType.EMAIL,
        {"to": ["A@Example.com", "a@example.com"], "from": "Ops <ops@example.com>"},
        plain_http=(),
        private=(),
    )
    assert mail.config["from"] == '"Ops" <ops@example.com>'
    assert not mail.secret


def test_a_filter_is_checked() -> None:
    assert read_filter([], "info") == (None, Severity.INFO)
    assert read_filter(["b", "a", "b"], "high") == (["a", "b"], Severity.HIGH)
    with pytest.raises(ChannelError) as caught:
        read_filter(["Big"], "awful")
    assert set(caught.value.faults) == {"kinds", "min_severity"}

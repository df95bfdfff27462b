"""Properties of the table of SMTP answers that no list of examples shows."""

import pytest

from shared.domain.outcome import Accepted, Ambiguous, Configuration, NotAttempted, Outcome, Permanent, Suppressed
from workers.providers.smtp_outcomes import may_be_relay_denial, outcome_of_loss, outcome_of_reply
from workers.providers.smtp_session import Reply, SmtpLost, Stage

BEFORE_THE_DOT = [stage for stage in Stage if stage is not Stage.DOT]


def every_refusal(stage: Stage) -> list[Outcome]:
    replies = [Reply(code, f"{code // 100}.{subject}.1", "words") for code in range(400, 600) for subject in range(8)]
    replies += [Reply(code, "", "words") for code in range(400, 600)]
    return [outcome_of_reply(stage, reply) for reply in replies]


@pytest.mark.parametrize("stage", list(Stage))
def test_a_refusal_is_proof_at_every_stage(stage: Stage) -> None:
    assert not any(isinstance(one, Ambiguous | Accepted | NotAttempted) for one in every_refusal(stage))


@pytest.mark.parametrize("stage", BEFORE_THE_DOT)
@pytest.mark.parametrize("timed_out", [True, False])
def test_nothing_lost_before_the_final_dot_is_ambiguous(stage: Stage, timed_out: bool) -> None:
    assert not isinstance(outcome_of_loss(SmtpLost(stage, "gone", timed_out=timed_out)), Ambiguous)
    assert not isinstance(outcome_of_reply(stage, Reply(-1, "", "what?")), Ambiguous)


def test_what_is_lost_or_unreadable_after_the_dot_is_ambiguous() -> None:
    assert isinstance(outcome_of_loss(SmtpLost(Stage.DOT, "gone")), Ambiguous)
    for code in (-1, 100, 199, 300, 354, 399, 600, 999):
        assert isinstance(outcome_of_reply(Stage.DOT, Reply(code, "", "what?")), Ambiguous)


def reply_of(line: str) -> Reply:
    code, _, text = line.partition(" ")
    first = text.partition(" ")[0]
    return Reply(int(code), first if first.count(".") == 2 else "", text)


SUPPRESSED = [
    "550 5.7.1 on the suppression list",
    "554 5.7.1 recipient address was suppressed due to customer policy (Spam Complaint)",
    "554 5.7.1 [internal] recipient address suppressed due to customer policy",
    "550 5.1.1 Recipient is blacklisted",
    "550 blacklisted recipient",
    "550 recipient is on our block list",
    "550 5.7.1 Not delivering: this address has unsubscribed",
    "550 recipient has opted out",
]
#: Refusals of us, or of the message, by relays that name the recipient too.
NOT_SUPPRESSED = [
    "554 5.7.1 <p@example.com>: Recipient address rejected: Blocked by policy",
    "550 5.7.1 Message to recipient was blocked as spam",
    "550 5.7.1 The recipient's server has blocked your address 192.0.2.1",
    "554 5.7.1 Service unavailable; client host [192.0.2.1] blocked using zen.example.org",
    "550 5.7.606 Access denied, banned sending IP [192.0.2.1]",
    "550 5.7.1 Sender is on the recipient block list",
    "550 5.2.1 recipient mailbox blocked",
]


@pytest.mark.parametrize("stage", [Stage.RCPT, Stage.DOT])
@pytest.mark.parametrize("line", SUPPRESSED)
def test_a_recipient_that_the_relay_will_not_write_to_is_suppressed(stage: Stage, line: str) -> None:
    outcome = outcome_of_reply(stage, reply_of(line))
    assert isinstance(outcome, Suppressed)
    assert not may_be_relay_denial(stage, reply_of(line), outcome)


@pytest.mark.parametrize("stage", [Stage.RCPT, Stage.DOT])
@pytest.mark.parametrize("line", NOT_SUPPRESSED)
def test_a_block_of_us_or_of_the_message_suppresses_nobody(stage: Stage, line: str) -> None:
    assert isinstance(outcome_of_reply(stage, reply_of(line)), Permanent)


RELAY_DENIALS = [
    ("Postfix", "554 5.7.1 <p@example.com>: Relay access denied"),
    ("Postfix of old", "554 <p@example.com>: Recipient address rejected: Relay access denied"),
    ("Postfix that defers", "454 4.7.1 <p@example.com>: Relay access denied"),
    ("Sendmail", "550 5.7.1 <p@example.com>... Relaying denied. Proper authentication required."),
    ("Exim", "550 relay not permitted"),
    ("Exim of cPanel", "550-host [192.0.2.1] is currently not permitted to relay through this server."),
    ("Exchange", "550 5.7.1 Unable to relay"),
    ("Exchange since 2013", "550 5.7.54 SMTP; Unable to relay recipient in non-accepted domain"),
    ("Exchange Online", "550 5.7.64 TenantAttribution; Relay Access Denied"),
    ("qmail", "553 sorry, that domain isn't in my list of allowed rcpthosts (#5.7.1)"),
    (
        "MailEnable",
        "503 This mail server requires authentication when attempting to send to a non-local e-mail address.",
    ),
    ("others", "550 we do not relay"),
    ("in other words", "550 5.7.1 Access denied"),
]


@pytest.mark.parametrize("line", [row[1] for row in RELAY_DENIALS], ids=[row[0] for row in RELAY_DENIALS])
def test_a_refusal_to_relay_is_known_by_its_words(line: str) -> None:
    reply = reply_of(line.replace("-", " ", 1) if line[3] == "-" else line)
    outcome = outcome_of_reply(Stage.RCPT, reply)
    assert not isinstance(outcome, Configuration)
    assert may_be_relay_denial(Stage.RCPT, reply, outcome)
    assert not may_be_relay_denial(Stage.DOT, reply, outcome_of_reply(Stage.DOT, reply))


@pytest.mark.parametrize(
    "line",
    [
        "550 5.1.1 no such user",
        "550 5.7.1 <p@example.com>: Recipient address rejected: User unknown",
        "550 5.7.1 no such mailbox",
        "550 5.1.1 undeliverable: host relay.example.org said: 550 no such user",
        "550 5.1.1 undeliverable: host mx.example.org said: 554 5.7.1 Relay access denied",
        "550 relay.example.org: mailbox unavailable",
        "450 4.7.1 greylisted",
        "552 5.3.4 too big",
    ],
)
def test_what_is_said_of_one_recipient_or_message_is_no_refusal_to_relay(line: str) -> None:
    reply = reply_of(line)
    assert not may_be_relay_denial(Stage.RCPT, reply, outcome_of_reply(Stage.RCPT, reply))

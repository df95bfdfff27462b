"""Made-up messages for the adapters' tests."""

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import uuid4

from shared.domain.outcome import Outcome
from workers.providers.protocol import EmailMessage, Message, Provider, SmsMessage

DELIVERY_ID = "0190a1b2-0000-7000-8000-000000000001.1"


def email_message(
    to: str = "person@example.com",
    *,
    sender: str = "Desk <desk@example.com>",
    reply_to: str | None = None,
    subject: str = "Hello",
    text: str | None = "Hello there",
    html: str | None = None,
) -> EmailMessage:
    now = datetime.now(UTC)
    return EmailMessage(uuid4(), to, sender, reply_to, subject, text, html, now, now, DELIVERY_ID)


def sms_message(
    to: str = "+16045550101",
    *,
    sender: str | None = None,
    text: str = "Hello there",
    first_attempt_at: datetime | None = None,
    delivery_id: str = DELIVERY_ID,
    age_s: float = 0.0,
) -> SmsMessage:
    now = datetime.now(UTC)
    return SmsMessage(uuid4(), to, sender, text, now, first_attempt_at or now, delivery_id, age_s=age_s)


def send_all(provider: Provider, messages: Sequence[Message]) -> list[Outcome]:
    """Send, hold the adapter to one answer per message, and give the outcomes in the messages' order."""
    answered: dict[int, Outcome] = {}
    for answer in provider.send(messages):
        if answer is not None:
            assert answer[0] not in answered, "a message was answered twice"
            answered[answer[0]] = answer[1]
    assert sorted(answered) == list(range(len(messages)))
    return [answered[index] for index in range(len(messages))]

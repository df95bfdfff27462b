"""What every provider is: messages in, outcomes out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from shared.domain.outcome import Outcome


@dataclass(frozen=True, slots=True)
class EmailMessage:
    """
    One rendered e-mail to one recipient.

    `key` is uuid5(delivery id, epoch): stable over retries, new after a person's requeue. It is the
    idempotency key, the CHES tag and the local part of Message-ID. `created_at` (aware) becomes Date.
    """

    key: UUID
    to: str
    sender: str
    reply_to: str | None
    subject: str
    text: str | None
    html: str | None
    created_at: datetime
    first_attempt_at: datetime


@dataclass(frozen=True, slots=True)
class SmsMessage:
    """One rendered SMS to one E.164 number. `sender` is None where the provider's default applies."""

    key: UUID
    to: str
    sender: str | None
    text: str
    created_at: datetime
    first_attempt_at: datetime


Message = EmailMessage | SmsMessage


class Provider(Protocol):
    """
    An adapter to one provider and one credential.

    An instance belongs to one worker thread (it owns that thread's connections) and is not shared.
    """

    #: Name shown to people and kept on attempts: "sandbox", "smtp", "ches", "twilio", "acs".
    name: str
    #: Names the credential without revealing it (hash prefix of account id or user@host): the key of
    #: circuit, gate and slots, so that two accounts never share one circuit.
    credential: str

    def send(self, messages: Sequence[Message]) -> Iterator[tuple[int, Outcome] | None]:
        """
        Make the calls of one window concurrently; yield (index into `messages`, outcome) as each ends.

        While nothing ends, None is yielded at least every 50 ms, so that the caller can record, renew or cut:
        closing the iterator cuts the calls still running. Every message is answered exactly once.
        Never raises for what a network or provider can do;
        total time is bounded by the provider's timeout setting. An exception out of here is a bug, and
        the messages not yet answered are then ambiguous.
        """
        ...

    def close(self) -> None:
        """Close kept connections."""
        ...

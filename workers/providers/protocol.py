"""What every provider is: messages in, outcomes out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from shared.domain.outcome import Outcome
from shared.domain.proof import Proof, Resolution


@dataclass(frozen=True, slots=True)
class EmailMessage:
    """
    One rendered e-mail to one recipient.

    `key` is uuid5(delivery id, epoch): stable over retries, new after a person's requeue. It is the
    idempotency key, the CHES tag and the local part of Message-ID. `created_at` (aware) becomes Date.
    `first_attempt_at` is when the call began, `age_s` how long ago that is, both by the ledger's clock (0: it is about
    to begin); `delivery_id` is the public id.
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
    delivery_id: str
    age_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SmsMessage:
    """
    One rendered SMS to one E.164 number. `sender` is None where the provider's default applies.

    `epoch` counts the requeues that `key` is made of.
    """

    key: UUID
    to: str
    sender: str | None
    text: str
    created_at: datetime
    first_attempt_at: datetime
    delivery_id: str
    epoch: int = 0
    age_s: float = 0.0


Message = EmailMessage | SmsMessage

#: seconds; the bound of one `prove`, far below the time for which its rows are kept from other provers.
PROVE_S = 30.0


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

    @property
    def resolution(self) -> Resolution:
        """How an unknown outcome of this provider can be found out."""
        ...

    def send(self, messages: Sequence[Message]) -> Iterator[tuple[int, Outcome] | None]:
        """
        Make the calls of one window concurrently; yield (index into `messages`, outcome) as each ends.

        While nothing ends, None is yielded at least every 50 ms, so that the caller can record, renew or `cut`;
        closing the iterator cuts the calls still running, unheard. Every message is answered exactly once.
        Never raises for what a network or provider can do;
        total time is bounded by the provider's timeout setting. An exception out of here is a bug, and
        the messages not yet answered are then ambiguous.
        """
        ...

    def cut(self) -> None:
        """
        Have the `send` under way, and any later one, answer what is left at once and end: the process must stop.

        A call of which nothing left this machine, or nothing that can have been taken, comes as NotAttempted; any other
        as Ambiguous with "call_cut".
        """
        ...

    def prove(self, messages: Sequence[Message]) -> Iterator[tuple[int, Proof] | None]:
        """
        Find out whether messages were taken, rendered as they were for the call whose outcome nobody knows.

        Yields (index, proof) as each is known, like `send`, and bounded by PROVE_S. It says what it saw; whether
        that is enough is for `shared.domain.proof.judge`. Never sends a message that might be sent twice.
        """
        ...

    def close(self) -> None:
        """Close kept connections."""
        ...

"""
The bodies of API v1: what is validated, what is answered, and, out of the same models, the OpenAPI document.

Requests are strict (no text for a number) and closed (an unknown field is a fault, not a silent loss).
"""

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from admin.api.books import Books
from admin.api.limits import MAX_NAME_CHARS, MAX_PARAMS, MAX_REFERENCE_CHARS
from shared.domain.states import Channel, DeliveryStatus, Lane, Mode, SendStatus

_RFC3339 = re.compile(r"(\d{4})-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:[0-5]\d)")
_NAIVE = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d+)?)?")
_FIRST_YEAR, _LAST_YEAR = 2000, 9998


def parse_timestamp(value: object) -> datetime | None:
    """
    Read an RFC 3339 date-time as aware UTC; None stays None.

    Raises: ValueError naming the remedy.
    """
    if value is None:
        return None
    if not isinstance(value, str):
        raise ValueError("must be text in RFC 3339 form, such as 2027-03-28T09:00:00+01:00")  # noqa: TRY004  # pydantic
    if _NAIVE.fullmatch(value):
        raise ValueError("has no offset from UTC; add Z or one such as +01:00")
    match = _RFC3339.fullmatch(value)
    if match is None:
        raise ValueError("is not an RFC 3339 date and time, such as 2027-03-28T09:00:00+01:00 or 2027-03-28T08:00:00Z")
    if not _FIRST_YEAR <= int(match[1]) <= _LAST_YEAR:
        raise ValueError(f"is not between the years {_FIRST_YEAR} and {_LAST_YEAR}")
    fraction = match[2] or ""
    text = value[:19] + fraction[:7] + (match[3] if match[3] not in "Zz" else "+00:00")
    try:
        return datetime.fromisoformat(text.upper()).astimezone(UTC)
    except ValueError:
        raise ValueError("is not a date and time that exists") from None


Timestamp = Annotated[
    datetime,
    BeforeValidator(parse_timestamp),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
Params = Annotated[
    dict[str, Any],
    WithJsonSchema(
        {
            "type": "object",
            "maxProperties": MAX_PARAMS,
            "additionalProperties": {"type": ["string", "number", "boolean", "null"]},
            "description": "Values for the placeholders. Names are matched without regard to case, spaces and "
            "hyphens. null counts as missing.",
        }
    ),
]


class Closed(BaseModel):
    """A request's object: strict, and without fields we do not know."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Recipient(Closed):
    """One recipient. Its params stand over those of the send."""

    to: str = Field(description="E-mail address, or telephone number in E.164 or as dialled in the tenant's region.")
    params: Params | None = None
    reference: str | None = Field(
        None, max_length=MAX_REFERENCE_CHARS, description="Your own id of this recipient; given back with its delivery."
    )


class EmailRequest(Closed):
    """The e-mail of a send. Of `text` and `html` at least one is needed."""

    from_: str | None = Field(
        None,
        alias="from",
        description="`name@example.com` or `Name <name@example.com>`; default: the tenant's, then the installation's.",
    )
    reply_to: str | None = None
    subject: str
    text: str | None = None
    html: str | None = None
    recipients: list[Recipient] = Field(min_length=1)


class SmsRequest(Closed):
    """The SMS of a send."""

    from_: str | None = Field(None, alias="from", description="Default: the tenant's sender, then the provider's.")
    text: str
    recipients: list[Recipient] = Field(min_length=1)


class SendRequest(Closed):
    """A submission: the same words for many recipients, on one or both channels, now or later."""

    name: str | None = Field(None, max_length=MAX_NAME_CHARS, description="Shown to people in lists.")
    send_at: Timestamp | None = Field(
        None, description="When to begin, with offset. A time in the past is accepted and means at once."
    )
    valid_until: Timestamp | None = Field(
        None, description="Deliveries not handed to a provider by then become `expired`. After now and after send_at."
    )
    urgent: bool = Field(default=False, description="Take the lane of single sends, whatever the size.")
    on_invalid: Literal["reject", "skip"] = Field(
        "reject",
        description="`reject`: one bad recipient refuses the whole submission and nothing is stored. "
        "`skip`: bad recipients are stored as `failed` with their reason, the others are sent.",
    )
    params: Params | None = Field(None, description="Params of every recipient.")
    email: EmailRequest | None = None
    sms: SmsRequest | None = None


class RescheduleRequest(Closed):
    """A new time for a send that has not begun; null means at once."""

    send_at: Timestamp | None


class BindRequest(Closed):
    """The tenant a load-test credential is to speak for."""

    tenant: str


class Counts(BaseModel):
    """A number for each channel."""

    email: int = 0
    sms: int = 0


class SendLinks(BaseModel):
    """Where to read on."""

    self: str
    deliveries: str


class SendAccepted(BaseModel):
    """The send is owed: it is in the ledger, whatever happens to this process or to the queues."""

    id: UUID
    status: SendStatus
    mode: Mode
    accepted: Counts = Field(description="Deliveries stored, those stored as failed included.")
    duplicates: Counts = Field(description="Recipients dropped because their address occurred before.")
    invalid: Counts = Field(description="Of the accepted, those stored as `failed` (on_invalid: skip).")
    segments: int | None = Field(description="SMS segments in all; null without SMS.")
    send_at: datetime | None
    valid_until: datetime | None
    notes: list[str] = Field(description="What a person should know, such as a send_at in the past.")
    links: SendLinks


class SendSummary(BaseModel):
    """A send in a list."""

    id: UUID
    name: str | None
    status: SendStatus
    mode: Mode
    accepted: Counts
    created_at: datetime
    send_at: datetime | None
    completed_at: datetime | None
    cancelled_at: datetime | None
    links: SendLinks


class SendView(SendSummary):
    """A send with its books."""

    lane: Lane
    duplicates: Counts
    segments: int | None
    valid_until: datetime | None
    queued_at: datetime | None
    started_at: datetime | None
    paused_at: datetime | None
    pause_reason: str | None = Field(description="Why it is paused. Of an operator's pause not who did it.")
    seconds_left: int | None = Field(
        description="At the pace so far; null while nobody can tell, as where the provider is held back."
    )
    books: dict[Channel, Books]


class SendPage(BaseModel):
    """Newest first."""

    sends: list[SendSummary]
    next_cursor: str | None = Field(description="Pass as `cursor` for the next page; null on the last.")


class DeliveryView(BaseModel):
    """What became of one recipient. Addresses are shown in full: they are the tenant's own."""

    id: str
    send_id: UUID
    channel: Channel
    status: DeliveryStatus
    to: str
    reference: str | None
    segments: int | None
    attempt_count: int
    next_attempt_at: datetime | None
    last_attempt_at: datetime | None
    settled_at: datetime | None
    provider: str | None
    provider_ref: str | None
    receipt_status: str | None
    last_error: str | None


class DeliveryPage(BaseModel):
    """In the order of the submission, e-mail first."""

    deliveries: list[DeliveryView]
    next_cursor: str | None = Field(description="Pass as `cursor` for the next page; null on the last.")


class AttemptView(BaseModel):
    """One call that reached a result, or whose result nobody learnt."""

    number: int
    provider: str
    outcome: str
    became: DeliveryStatus
    code: str | None
    detail: str | None
    provider_ref: str | None
    started_at: datetime
    ended_at: datetime
    evidence: dict[str, str] | None = Field(description="What is known of a call whose outcome nobody learnt.")


class DeliveryDetail(DeliveryView):
    """A delivery with every attempt, oldest first."""

    attempts: list[AttemptView]


class Bound(BaseModel):
    """The tenant the credential now speaks for."""

    tenant: str


class ProblemFault(BaseModel):
    """One fault and its place, a JSON pointer (RFC 6901)."""

    pointer: str
    detail: str


class Problem(BaseModel):
    """RFC 9457. `errors` lists faults up to a limit; `error_count` counts them all."""

    type: str
    title: str
    status: int
    detail: str
    request_id: str
    errors: list[ProblemFault] | None = None
    error_count: int | None = None

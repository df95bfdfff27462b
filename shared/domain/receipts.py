"""
What providers report about a message after taking it, in words of ours, and the order in which they stand.

Reports come late, twice and in any order, so a delivery's `receipt_status` only moves to a later stage.
Source: twilio.com/docs/messaging/guides/track-outbound-message-status; learn.microsoft.com, Event Grid schema of
Azure Communication Services SMS.
"""

from enum import StrEnum


class ReceiptStatus(StrEnum):
    """Where a message is after the provider took it; the order of the names is the order of the stages."""

    QUEUED = "queued"
    SENDING = "sending"
    SENT = "sent"
    FAILED = "failed"
    UNDELIVERED = "undelivered"
    DELIVERED = "delivered"
    READ = "read"


#: A report of a stage in the same group does not replace another: the first end that is told stays.
_STAGES = (
    (ReceiptStatus.QUEUED,),
    (ReceiptStatus.SENDING,),
    (ReceiptStatus.SENT,),
    (ReceiptStatus.FAILED, ReceiptStatus.UNDELIVERED),
    (ReceiptStatus.DELIVERED,),
    (ReceiptStatus.READ,),
)

#: Twilio's words. "canceled" ends a scheduled message that was taken and never sent.
TWILIO = {
    "accepted": ReceiptStatus.QUEUED,
    "scheduled": ReceiptStatus.QUEUED,
    "queued": ReceiptStatus.QUEUED,
    "sending": ReceiptStatus.SENDING,
    "sent": ReceiptStatus.SENT,
    "failed": ReceiptStatus.FAILED,
    "canceled": ReceiptStatus.FAILED,
    "undelivered": ReceiptStatus.UNDELIVERED,
    "delivered": ReceiptStatus.DELIVERED,
    "read": ReceiptStatus.READ,
}

#: Azure's words; 5002, "delivered or not, unknown", comes with one of them.
ACS = {
    "delivered": ReceiptStatus.DELIVERED,
    "failed": ReceiptStatus.FAILED,
    "expired": ReceiptStatus.UNDELIVERED,
    "undeliverable": ReceiptStatus.UNDELIVERED,
    "rejected": ReceiptStatus.FAILED,
    "accepted": ReceiptStatus.QUEUED,
    "enroute": ReceiptStatus.SENT,
}

#: Codes that say the recipient opted out: the address joins the tenant's suppression list.
SUPPRESSION_CODES = {"twilio": frozenset({"21610"}), "acs": frozenset({"4007"})}


def earlier_than(status: ReceiptStatus) -> tuple[ReceiptStatus, ...]:
    """The stages that a report of `status` may replace."""
    place = next(place for place, stage in enumerate(_STAGES) if status in stage)
    return tuple(each for stage in _STAGES[:place] for each in stage)

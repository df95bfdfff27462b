"""The books of a send as the API shows them."""

from datetime import datetime

from pydantic import BaseModel, Field


class OwedWhere(BaseModel):
    """Where the owed deliveries are and what they wait for; the counts sum to `owed`."""

    ready: int = Field(description="May be sent now.")
    in_hand: int = Field(description="In a call to the provider.")
    backoff: int = Field(description="Wait for their next try.")
    backoff_until: datetime | None = Field(description="When the first of them is tried again.")
    gate: int = Field(description="The provider told us to slow down.")
    circuit: int = Field(description="The provider does not work at the moment.")
    isolated: int = Field(description="The provider is not set up right; its operators know.")
    hold: int = Field(description="An operator stopped the provider.")
    cap: int = Field(description="As many calls as the provider may be given are in flight.")
    paused: int = Field(description="The send is paused.")
    scheduled: int = Field(description="The send's time is to come.")
    proving: int = Field(description="The outcome of their last call is being found out.")


class Books(BaseModel):
    """
    Where every accepted delivery of a channel is.

    accepted = sent + failed + dead_lettered + discarded + suppressed + cancelled + expired + unsure + owed, always.
    """

    accepted: int
    sent: int
    failed: int
    dead_lettered: int
    discarded: int = Field(
        description="Failed, dead-lettered or unsure, and given up by an operator; counted here alone."
    )
    suppressed: int
    cancelled: int
    expired: int
    unsure: int
    owed: int = Field(description="Not settled: waiting + sending + retrying + proving.")
    waiting: int
    sending: int
    retrying: int
    proving: int = Field(description="In a call whose outcome is being found out; `unsure` once nobody can.")
    owed_where: OwedWhere
    unaccounted: int = Field(description="accepted less all of the above; anything but 0 is a fault of ours.")

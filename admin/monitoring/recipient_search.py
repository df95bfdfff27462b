"""`/admin/monitoring/recipients/<delivery>`: everything that was sent to one recipient, found by the address."""

from http import HTTPStatus
from uuid import UUID

from flask import abort, flash, redirect, request, url_for
from werkzeug.wrappers import Response as AnyResponse

from admin.errors import ProblemError
from admin.extensions import services
from admin.monitoring.access import reads
from admin.monitoring.frame import page, pages
from admin.monitoring.panels import add_page
from shared.domain.address import AddressError, parse_email, parse_phone, trim_edges
from shared.domain.ids import IdError, delivery_id, parse_delivery_id
from shared.domain.masking import mask_text
from shared.domain.requeue import REQUEUEABLE, FailureFilter
from shared.domain.states import Channel
from shared.ledger import failures, recipient_search
from shared.ledger.recipient_search import Key, Looked

PAGE_SIZE = 50
#: Seconds for which deliveries are looked through: for a page, and for the first one to an address.
_LOOK_S, _FIND_S = 1.0, 3.0

add_page("recipient", tab="Failures")


@pages.get("/failures/find")
@reads
def find_nobody() -> AnyResponse:
    """The same address without its form: opened or loaded again by hand."""
    return redirect(url_for("monitoring.failures_page"), code=HTTPStatus.SEE_OTHER)


@pages.post("/failures/find")
@reads
def find_recipient() -> AnyResponse:
    """By an address that stays in the body of this request: what it leads to names a delivery."""
    try:
        channel, address = _normalised(trim_edges(request.form.get("address", "")))
    except AddressError as error:
        why = str(error).removesuffix(", or set a default region")  # which a send has, and a search has not
        return _nobody(mask_text(f"This is no address that a message can go to: {why}"))
    found, looked = _first(channel, address)
    if found is not None:
        return redirect(url_for("monitoring.recipient", delivery=delivery_id(*found)), code=HTTPStatus.SEE_OTHER)
    if looked.last is None:
        return _nobody("Nothing that is kept was sent to this address, or is to be.")
    return _nobody(
        f"Nothing to this address among the {looked.count:,} newest deliveries, accepted since"
        f" {looked.since:%Y-%m-%d %H:%M} UTC, nor among what failed before that. Older ones were not looked through."
    )


@pages.get("/recipients/<delivery>")
@reads
def recipient(delivery: str) -> str:
    """All deliveries to the recipient of this one, the newest first."""
    this, before = _parse(delivery), request.args.get("before")
    transaction = services().reading.transaction
    with transaction() as connection:
        known = failures.find(connection, *this)
        if known is None:
            detail = "There is no such delivery any more: look for the recipient by the address."
            raise ProblemError(HTTPStatus.NOT_FOUND, "not-found", detail)
    channel = Channel(known.channel)
    looked = recipient_search.look(
        transaction,
        channel,
        known.address,
        most=PAGE_SIZE,
        seconds=_LOOK_S,
        before=_parse(before) if before else None,
    )
    with transaction() as connection:
        found = recipient_search.select(connection, looked.keys)
        who = failures.address_hash(connection, channel, known.address)
        open_failures = failures.page(connection, _failures_of(who), discarded=False, before=None, limit=PAGE_SIZE)
    return page(
        "recipient",
        "monitoring/recipient.html",
        masked_address=known.masked,
        channel=channel.value,
        found=found,
        looked=looked,
        is_full=len(found) == PAGE_SIZE,
        older=delivery_id(*looked.last) if looked.last else None,
        this=delivery,
        is_first=before is None,
        who=who,
        open_count=len(open_failures),
    )


def _first(channel: Channel, address: str) -> tuple[Key | None, Looked]:
    """One delivery to the address: a failure, which an index finds whatever its age, or the newest of all."""
    transaction = services().reading.transaction
    with transaction() as connection:
        asked = _failures_of(failures.address_hash(connection, channel, address))
        for discarded in (False, True):
            for line in failures.page(connection, asked, discarded=discarded, before=None, limit=1):
                return (line.send_id, line.row_no), Looked([], 0, None, None)
    looked = recipient_search.look(transaction, channel, address, most=1, seconds=_FIND_S)
    return (looked.keys[0] if looked.keys else None), looked


def _failures_of(who: str) -> FailureFilter:
    return FailureFilter(recipient=who, statuses=REQUEUEABLE)


def _nobody(why: str) -> AnyResponse:
    flash(why, "error")
    return redirect(url_for("monitoring.failures_page"), code=HTTPStatus.SEE_OTHER)


def _normalised(text: str) -> tuple[Channel, str]:
    if "@" in text:
        return Channel.EMAIL, parse_email(text).ascii
    return Channel.SMS, parse_phone(text, None)


def _parse(delivery: str) -> tuple[UUID, int]:
    try:
        return parse_delivery_id(delivery)
    except IdError:
        abort(HTTPStatus.NOT_FOUND)

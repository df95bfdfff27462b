"""
`/inbox`: what the sandbox provider was given, as its recipients would have seen it.

Messages come here from test keys, whatever is configured, and from live keys where a provider is `sandbox`. Pages are
complete without JavaScript and load nothing from elsewhere; a message's HTML is a document of its own under a policy
that lets it draw and do nothing else. Who is signed in may look; addresses are masked for those who may only read, and
the HTML part, which cannot be masked and stay what it is, is shown to none of them.
"""

from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any

from flask import Blueprint, Response, abort, render_template, request
from sqlalchemy import and_, case, func, select

from admin.extensions import db, services
from admin.monitoring.access import PAGE_POLICY, acts, may_act, reads
from shared.domain.idn import readable
from shared.domain.masking import mask_address, mask_text
from shared.domain.sms_text import SegmentCount, segments
from shared.ledger.models import Delivery, SandboxMessage
from shared.settings import Settings

#: Messages of one page of the list.
PAGE_SIZE = 50
#: Characters of a message's beginning in the list.
_PREVIEW_LENGTH = 140
_LARGEST_ID = 2**63 - 1
#: Characters of a letter that are shown where it is masked.
_MASKED_LENGTH = 20_000
#: The delivery that a message is.
_IS_OF = and_(Delivery.send_id == SandboxMessage.send_id, Delivery.row_no == SandboxMessage.row_no)

#: As every page, and a frame for the HTML part of a letter.
_PAGE_POLICY = f"{PAGE_POLICY}; frame-src 'self'"
#: Inline styles and inline images are how HTML mail is made; scripts, forms, links out and remote images are shut off.
_MAIL_POLICY = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)


@dataclass(frozen=True, slots=True)
class Line:
    """A message in the list; addresses are masked."""

    id: int
    channel: str
    to: str
    title: str
    preview: str
    reference: str
    received_at: datetime


@dataclass(frozen=True, slots=True)
class Letter:
    """A message as it is shown; `html` is whether its HTML part is, None where it has none."""

    to: str
    sender: str
    reply_to: str
    subject: str
    text: str | None
    reference: str
    html: bool | None
    received_at: datetime


def blueprint(settings: Settings) -> Blueprint:
    """The pages of an installation with these settings."""
    pages = Blueprint("inbox", __name__, url_prefix="/inbox")

    @pages.before_request
    def do_not_wait_in_vain() -> None:
        services().reading.refuse_while_away()

    @pages.after_request
    def seal(response: Response) -> Response:
        response.headers.setdefault("Content-Security-Policy", _PAGE_POLICY)
        return response

    @pages.get("")
    @reads
    def messages() -> str:
        before = request.args.get("before", _LARGEST_ID, type=int)
        lines = _lines(min(max(before, 0), _LARGEST_ID))
        older = lines[PAGE_SIZE - 1].id if len(lines) > PAGE_SIZE else None
        return _page(
            "messages.html", lines=lines[:PAGE_SIZE], older=older, is_first="before" not in request.args,
            settings=settings,
        )  # fmt: skip

    @pages.get("/<int:message_id>")
    @reads
    def message(message_id: int) -> str:
        found = _message(message_id)
        counted: SegmentCount | None = segments(found.text or "") if found.channel == "sms" else None
        letter = _whole(found) if may_act() else _masked(found)
        return _page(
            "message.html", id=found.id, letter=letter, segments=counted, is_whole=may_act(),
            admin_role=settings.admin_role,
        )  # fmt: skip

    @pages.get("/<int:message_id>/html")
    @acts
    def html_part(message_id: int) -> Response:
        found = _message(message_id)
        if found.html is None:
            abort(HTTPStatus.NOT_FOUND)
        return Response(found.html, mimetype="text/html", headers={"Content-Security-Policy": _MAIL_POLICY})

    return pages


def _lines(before: int) -> list[Line]:
    title = func.coalesce(SandboxMessage.subject, func.left(SandboxMessage.text, _PREVIEW_LENGTH), "")
    is_mail = SandboxMessage.subject.is_not(None)
    preview = case((is_mail, func.left(func.coalesce(SandboxMessage.text, ""), _PREVIEW_LENGTH)), else_="")
    columns = (SandboxMessage.id, SandboxMessage.channel, SandboxMessage.address, title, preview)
    rows = db.session.execute(
        select(*columns, SandboxMessage.received_at, Delivery.reference)
        .outerjoin(Delivery, _IS_OF)
        .where(SandboxMessage.id < before)
        .order_by(SandboxMessage.id.desc())
        .limit(PAGE_SIZE + 1)
    )
    return [
        Line(
            id=row[0],
            channel=row[1],
            to=mask_address(row[1], readable(row[2])),
            title=mask_text(row[3]),
            preview=mask_text(row[4]),
            received_at=row[5],
            reference=mask_text(row[6] or ""),
        )
        for row in rows
    ]


def _whole(message: SandboxMessage) -> Letter:
    return Letter(
        to=_both_forms(message.address),
        sender=message.sender or "",
        reply_to=message.reply_to or "",
        subject=message.subject or "",
        text=message.text,
        reference=_reference(message),
        html=None if message.html is None else True,
        received_at=message.received_at,
    )


def _masked(message: SandboxMessage) -> Letter:
    return Letter(
        to=mask_address(message.channel, readable(message.address)),
        sender=mask_text(message.sender or ""),
        reply_to=mask_text(message.reply_to or ""),
        subject=mask_text(message.subject or ""),
        text=None if message.text is None else mask_text(message.text, _MASKED_LENGTH),
        reference=mask_text(_reference(message)),
        html=None if message.html is None else False,
        received_at=message.received_at,
    )


def _reference(message: SandboxMessage) -> str:
    """The tenant's own word for the recipient; nothing once the delivery itself was forgotten."""
    found = db.session.scalar(
        select(Delivery.reference).join(SandboxMessage, _IS_OF).where(SandboxMessage.id == message.id)
    )
    return found or ""


def _message(message_id: int) -> SandboxMessage:
    found: SandboxMessage | None = None
    if message_id <= _LARGEST_ID:
        found = db.session.get(SandboxMessage, message_id)
    if found is None:
        abort(HTTPStatus.NOT_FOUND)
    return found


def _both_forms(address: str) -> str:
    read = readable(address)
    return address if read == address else f"{read} ({address})"


def _page(template: str, **context: Any) -> str:
    return render_template(f"inbox/{template}", **context)

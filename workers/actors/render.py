"""From a claimed row to the message its provider is given: templates compiled once per send and process."""

from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import Any, Protocol
from uuid import UUID

from shared.domain.ids import delivery_id, delivery_key
from shared.domain.merge import MissingParam, Template, TemplateError, compile_template
from shared.domain.states import Channel
from shared.ledger.chains import SendContent
from workers.providers.protocol import EmailMessage, Message, SmsMessage

#: Sends whose compiled templates are kept: as many as threads work at once. A template may have a megabyte and
#: more, so this times TEMPLATE_MAX_BYTES, and as much again compiled, is what a process may have to hold.
_KEPT = 8


class Row(Protocol):
    """What a delivery's message depends on: the same for a call and for the proof of a call."""

    @property
    def row_no(self) -> int: ...  # noqa: D102
    @property
    def address(self) -> str: ...  # noqa: D102
    @property
    def params(self) -> dict[str, Any] | None: ...  # noqa: D102
    @property
    def epoch(self) -> int: ...  # noqa: D102
    @property
    def attempt_at(self) -> datetime: ...  # noqa: D102


Render = Callable[[Row], Message]


class RenderError(Exception):
    """What was accepted cannot be rendered: permanent for a row, a reason to pause for a whole send."""


def renderer(send: SendContent, channel: Channel, *, default_sender: str | None) -> Render:
    """The function that renders the rows of one channel of a send."""
    content = send.content[channel.value]
    if channel is Channel.SMS:
        return _sms(send, content, content.get("from") or send.sms_from)
    return _email(send, content, content.get("from") or send.email_from or default_sender)


def _email(send: SendContent, content: dict[str, Any], sender: str | None) -> Render:
    if sender is None:
        raise RenderError("no sender: neither the send, its tenant nor EMAIL_FROM names one")
    subject = _compiled(send.id, "subject", content["subject"], "text")
    text = _compiled(send.id, "text", content["text"], "text") if content.get("text") is not None else None
    html = _compiled(send.id, "html", content["html"], "html") if content.get("html") is not None else None
    reply_to = content.get("reply_to")

    def render(row: Row) -> EmailMessage:
        params = {**send.params, **row.params} if row.params else send.params
        try:
            return EmailMessage(
                key=delivery_key(send.id, row.row_no, row.epoch),
                to=row.address,
                sender=sender,
                reply_to=reply_to,
                subject=subject.render(params),
                text=None if text is None else text.render(params),
                html=None if html is None else html.render(params),
                created_at=send.created_at,
                first_attempt_at=row.attempt_at,
                delivery_id=delivery_id(send.id, row.row_no),
            )
        except MissingParam as error:
            raise RenderError(str(error)) from error

    return render


def _sms(send: SendContent, content: dict[str, Any], sender: str | None) -> Render:
    text = _compiled(send.id, "sms", content["text"], "text")

    def render(row: Row) -> SmsMessage:
        params = {**send.params, **row.params} if row.params else send.params
        try:
            body = text.render(params)
        except MissingParam as error:
            raise RenderError(str(error)) from error
        return SmsMessage(
            key=delivery_key(send.id, row.row_no, row.epoch),
            to=row.address,
            sender=sender,
            text=body,
            created_at=send.created_at,
            first_attempt_at=row.attempt_at,
            delivery_id=delivery_id(send.id, row.row_no),
            epoch=row.epoch,
        )

    return render


@lru_cache(maxsize=4 * _KEPT)
def _compiled(send_id: UUID, part: str, source: str, kind: Any) -> Template:  # noqa: ARG001  # ids make the key cheap to compare
    try:
        return compile_template(source, kind=kind)
    except TemplateError as error:
        raise RenderError(f"the {part} template is no longer understood: {error}") from error

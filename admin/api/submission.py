"""What a submission says apart from its recipients, checked: templates compiled, senders and times settled."""

import re
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from admin.api.faults import Faults, pointer_to, shape_faults, unstorable
from admin.api.limits import MAX_FIELDS, MAX_PARAMS
from admin.api.outline import Outline
from admin.api.schemas import EmailRequest, SendRequest, SmsRequest, parse_timestamp
from admin.errors import Fault
from shared.domain.address import AddressError, check_header_text, parse_phone, parse_sender
from shared.domain.merge import Template, TemplateError, compile_template, normalise_name, normalise_params
from shared.domain.merge_values import show
from shared.domain.states import Channel
from shared.ledger.tenants import Caller
from shared.settings import Settings

#: How far ahead a send may be scheduled: a typing error in the year should not sit in the ledger for ever.
_FURTHEST = timedelta(days=10 * 366)
_SLOT_NAME = re.compile(r"\{\{[-+]?\s*([^\W\d]\w*)")
#: A short code, or an alphanumeric sender id of at most 11 characters with a letter in it (3GPP TS 23.040 §9.1.2.5).
_SMS_SENDER = re.compile(r"\d{3,8}|(?=.*[A-Za-z])[A-Za-z0-9 _&+-]{1,11}|MG[0-9a-f]{32}", re.ASCII)


@dataclass(frozen=True)
class Part:
    """A compiled template and what is needed to bound what comes out of it."""

    source: str
    template: Template
    #: How often each param is put in, at most.
    uses: Counter[str]
    #: Characters that one character of a value may become.
    growth: int
    most_uses: int


@dataclass
class ChannelContent:
    """One channel's words. `parts` lacks those at fault."""

    channel: Channel
    content: dict[str, str | None]
    parts: dict[str, Part] = field(default_factory=dict)


@dataclass
class Header:
    """A submission without recipients; worth something only when no fault was found."""

    name: str | None = None
    send_at: datetime | None = None
    valid_until: datetime | None = None
    urgent: bool = False
    skip_invalid: bool = False
    params: dict[str, object] = field(default_factory=dict)
    channels: list[ChannelContent] = field(default_factory=list)


def read_header(outline: Outline, *, caller: Caller, settings: Settings, now: datetime, faults: Faults) -> Header:
    """Check everything but the recipients; what is wrong goes to `faults`, and does not stop the rest."""
    raw = outline.header
    for fault in unstorable(raw):
        faults.add(fault.pointer, fault.detail)
    for fault in _shape(raw):
        if not faults.at(fault.pointer):
            faults.add(fault.pointer, fault.detail)
    if not isinstance(raw, dict):
        return Header()
    header = Header(
        name=raw.get("name"), urgent=raw.get("urgent") is True, skip_invalid=raw.get("on_invalid") == "skip"
    )
    _read_times(raw, header, now=now, faults=faults)
    header.params = _read_params(raw.get("params"), faults)
    if raw.get("email") is None and raw.get("sms") is None:
        faults.add("", "names neither email nor sms; give at least one")
    if isinstance(raw.get("email"), dict):
        header.channels.append(_read_email(raw["email"], caller=caller, settings=settings, faults=faults))
    if isinstance(raw.get("sms"), dict):
        header.channels.append(_read_sms(raw["sms"], caller=caller, settings=settings, faults=faults))
    return header


def _shape(raw: object) -> list[Fault]:
    if isinstance(raw, dict):
        for name, model in (("email", EmailRequest), ("sms", SmsRequest)):
            if isinstance(raw.get(name), dict) and len(raw[name]) > MAX_FIELDS:
                return shape_faults(model, raw[name], pointer_to(name))
    return shape_faults(SendRequest, raw)


def plain_numbers(params: dict[str, object]) -> dict[str, object]:
    """
    Give numbers with a fraction or exponent as the text they are shown as.

    JSON's number type would not keep them: 1.10 would come back from the ledger as 1.1.
    """
    return {
        name: value if value is None or isinstance(value, str | bool | int) else show(value)
        for name, value in params.items()
    }


def _read_times(raw: dict[str, Any], header: Header, *, now: datetime, faults: Faults) -> None:
    for key in ("send_at", "valid_until"):
        try:
            setattr(header, key, parse_timestamp(raw.get(key)))
        except ValueError:
            continue  # the shape's check has said so
    if header.send_at is not None and header.send_at > now + _FURTHEST:
        faults.add("/send_at", "is more than ten years ahead")
    if header.valid_until is not None:
        if header.valid_until <= now:
            faults.add("/valid_until", "is not after now: everything would expire unsent")
        elif header.send_at is not None and header.valid_until <= header.send_at:
            faults.add("/valid_until", "is not after send_at: everything would expire unsent")


def _read_params(raw: object, faults: Faults) -> dict[str, object]:
    if not isinstance(raw, dict):
        return {}
    if len(raw) > MAX_PARAMS:
        faults.add("/params", f"has {len(raw):,} params; at most {MAX_PARAMS:,} are taken")
        return {}
    accepted, problems = normalise_params(raw)
    for name, problem in problems:
        pointer = pointer_to("params", name)
        if not faults.at(pointer):
            faults.add(pointer, problem)
    return plain_numbers(accepted)


def _read_email(raw: dict[str, Any], *, caller: Caller, settings: Settings, faults: Faults) -> ChannelContent:
    given = raw.get("from")
    sender = _read_sender(given, "/email/from", faults)
    if given is None:
        fallback = caller.email_from or settings.email_from
        if fallback is None:
            faults.add("/email/from", "is required: neither the tenant nor this installation has a default sender")
        else:
            sender = _read_sender(fallback, "/email/from", faults)
    reply_to = _read_sender(raw.get("reply_to"), "/email/reply_to", faults)
    content = ChannelContent(Channel.EMAIL, {"from": sender, "reply_to": reply_to})
    for key, kind in _EMAIL_PARTS.items():
        _read_part(content, raw.get(key), key=key, kind=kind, settings=settings, faults=faults)
    subject = content.parts.get("subject")
    if subject is not None and (problem := check_header_text(subject.source)) is not None:
        faults.add("/email/subject", problem)
    if raw.get("subject") == "":
        faults.add("/email/subject", "is empty")
    if not raw.get("text") and not raw.get("html"):
        faults.add("/email", "has neither text nor html; give at least one")
    return content


_EMAIL_PARTS: dict[str, Literal["text", "html"]] = {"subject": "text", "text": "text", "html": "html"}


def _read_sms(raw: dict[str, Any], *, caller: Caller, settings: Settings, faults: Faults) -> ChannelContent:
    sender = raw.get("from")
    if isinstance(sender, str):
        sender = _read_sms_sender(sender, caller, faults)
    content = ChannelContent(Channel.SMS, {"from": sender or caller.sms_from})
    _read_part(content, raw.get("text"), key="text", kind="text", settings=settings, faults=faults)
    if raw.get("text") == "":
        faults.add("/sms/text", "is empty")
    return content


def _read_sms_sender(text: str, caller: Caller, faults: Faults) -> str | None:
    if _SMS_SENDER.fullmatch(text):
        return text
    try:
        return parse_phone(text, caller.default_region)
    except AddressError:
        faults.add(
            "/sms/from", "is neither a telephone number, a short code nor a sender id of up to 11 letters and digits"
        )
        return None


def _read_sender(text: object, pointer: str, faults: Faults) -> str | None:
    if not isinstance(text, str):
        return None
    try:
        return parse_sender(text).spelled
    except AddressError as error:
        if not faults.at(pointer):
            faults.add(pointer, str(error))
        return None


def _read_part(
    content: ChannelContent,
    source: object,
    *,
    key: str,
    kind: Literal["text", "html"],
    settings: Settings,
    faults: Faults,
) -> None:
    content.content[key] = None
    if not isinstance(source, str) or not source:
        return
    content.content[key] = source
    pointer = pointer_to(content.channel.value, key)
    if faults.at(pointer):
        return
    if len(source.encode("utf-8")) > settings.template_max_bytes:
        faults.add(pointer, f"is larger than {settings.template_max_bytes:,} bytes")
        return
    try:
        template = compile_template(source, kind=kind)
    except TemplateError as error:
        faults.add(pointer, str(error))
        return
    uses = Counter(normalise_name(name) for name in _SLOT_NAME.findall(source))
    content.parts[key] = Part(source, template, uses, template.growth, most_uses=max(uses.values(), default=0))

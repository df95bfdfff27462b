"""
The signature of a failure: failures with one cause have one signature, whoever they hit.

It groups dead letters and failed deliveries, so it is stored with each of them when the attempt is settled,
together with the version of the rules that made it: after a change of rules old and new groups stand side by
side instead of mixing.
"""

import hashlib
import re
from typing import NamedTuple

from shared.domain.masking import mask_text

#: Raise it with every change of `normalise_detail`, or of what the signature is made of.
SIGNATURE_VERSION = 1

#: characters of a group's title; a row of a table.
MAX_TITLE_CHARS = 120

#: hexadecimal digits; 48 bits keep a million different causes apart with a chance of 0.2 % for any two to meet.
_ID_DIGITS = 12

_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'(?!\w)|`[^`]*`|“[^”]*”|«[^»]*»|<[^<>]*>")
_LONG_WORD = re.compile(r"[\w+/=-]{33,}")
_WITH_DIGIT = re.compile(r"[\w./:+*@-]*\d[\w./:+*@-]*")
_MASKED = re.compile(r"\S*\*\*\*\S*")
_HEX = re.compile(r"\b[0-9a-fA-F]{8,}\b")
_SPACES = re.compile(r"\s+")
_REPEATED = re.compile(r"#(?:\W?#)+")


class FailureSignature(NamedTuple):
    """`id` is 12 hexadecimal digits, `title` a line for people without any address, `version` that of the rules."""

    id: str
    title: str
    version: int


def failure_signature(*, channel: str, provider: str, outcome_class: str, code: str, detail: str) -> FailureSignature:
    """
    Sign a failure.

    Args:
        channel: a delivery's channel.
        provider: the name of the provider that answered.
        outcome_class: the outcome's word in the glossary, `permanent`.
        code: the provider's short, stable code; it is part of the signature as it is.
        detail: the provider's text, masked or not: both give the same signature.
    """
    cause = normalise_detail(detail)
    code = mask_text(code)
    parts = (str(SIGNATURE_VERSION), channel, provider, outcome_class, code, cause.lower())
    digest = hashlib.sha256("\x1f".join(parts).encode()).hexdigest()
    title = f"{code}: {cause}" if code and cause else code or cause or outcome_class
    if len(title) > MAX_TITLE_CHARS:
        title = title[: MAX_TITLE_CHARS - 1] + "…"
    return FailureSignature(digest[:_ID_DIGITS], title, SIGNATURE_VERSION)


def normalise_detail(detail: str) -> str:
    """Take out of a provider's text what differs between recipients: addresses, numbers, ids, quoted text."""
    text = mask_text(detail)
    text = _QUOTED.sub("#", text)
    for varying in (_MASKED, _LONG_WORD, _WITH_DIGIT, _HEX):
        text = varying.sub("#", text)
    return _SPACES.sub(" ", _REPEATED.sub("#", text)).strip(" .,:;#-")

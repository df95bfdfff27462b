"""
What text must not contain to be stored, and to stand in a message header.

Pure text questions that the API asks of nearly every string it is given, so each has a quick way out for
ordinary text. The answers never repeat the text.
"""

import re

#: Line ends in the eyes of some reader (CR, LF, VT, FF, FS–RS, NEL, LS, PS), NUL and the other C0 and C1
#: controls. A tab is white space in a header and may stay. Source: RFC 5322 §2.2, §3.2.2; str.splitlines.
_HEADER_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")

#: A header's text that looks like this is decoded by readers, and by Python's own EmailMessage when it folds:
#: `=?utf-8?q?=0D=0A?=` becomes a line end and what follows a header of its own.
#: Source: RFC 2047 §2; https://github.com/python/cpython/issues/121650
_ENCODED_WORD = re.compile(r"=\?.*\?=")


def check_storable(text: str) -> str | None:
    """
    Say why Postgres could not hold a text; None when it can.

    Source: https://www.postgresql.org/docs/current/datatype-character.html (no NUL in text or jsonb);
    lone surrogates have no UTF-8 form (RFC 3629 §3).
    """
    if "\0" in text:
        return f"contains a NUL character at position {text.index(chr(0)) + 1}; remove it"
    if text.isascii():
        return None
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f"contains half of a surrogate pair at position {error.start + 1}; send the whole character"
    return None


def has_header_hazard(text: str) -> bool:
    """
    Say whether a text could end a header line or be decoded into something that does.

    Ask it of the finished subject or name: a template and a value may be harmless apart and a hazard together.
    """
    if text.isprintable():
        return "=?" in text and _ENCODED_WORD.search(text) is not None
    return _HEADER_CONTROL.search(text) is not None or _ENCODED_WORD.search(text) is not None


def check_header_text(text: str) -> str | None:
    """Say why a text cannot stand in a header (subject, display name, file name); None when it can."""
    if control := _HEADER_CONTROL.search(text):
        return f"contains the control character U+{ord(control[0]):04X}; headers are one line of plain text"
    if _ENCODED_WORD.search(text):
        return "contains an encoded word (=?…?=), which mail readers would decode; write the text itself"
    return check_storable(text)

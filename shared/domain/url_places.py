"""
Values inside the URLs of an HTML template: encoded for their place, so that a value is one part of the URL only.

    href="{{ link }}"                           the value is a whole URL: kept as it is, its scheme is checked
    href="https://{{ host }}/{{ path }}"        percent-encoded; `/` stays, and `:` before the first one
    href="https://example.com/?q={{ q }}"       percent-encoded, everything but letters, digits and - . _ ~
    href="mailto:{{ to }}"  href="tel:{{ no }}" as in a query; `@` stays, and `+` in a telephone number

A value that begins a URL is http, https, mailto or tel, or relative. Others (`javascript:`) are refused when a send
is accepted, and would be rendered as `#`.

Source: RFC 3986 §2.3 and §3, RFC 6068 (mailto), RFC 3966 (tel); what browsers drop before they read a scheme, and
backslashes as slashes: WHATWG URL §4.4.
"""

import re
from collections.abc import Callable
from urllib.parse import quote

import markupsafe

#: HTML attributes whose value is one URL.
URL_ATTRIBUTES = frozenset(
    ("href", "xlink:href", "src", "action", "formaction", "cite", "poster", "data", "background")
)

#: characters that one character of a value may become: four bytes of UTF-8, three characters each.
LARGEST_ENCODING = 12

_SCHEMES = frozenset(("http", "https", "mailto", "tel"))
LINK_SCHEMES = "http, https, mailto, tel or relative"
#: What stands in the place of a link that is not one of these.
_NO_LINK = "#"

_DROPPED = re.compile(r"[\t\n\r]")
#: Space and control characters, as browsers trim them.
_TRIMMED = "".join(map(chr, range(0x21)))
_SCHEME = re.compile(r"[^/\\?#]*?:")
_SCRIPT = re.compile(r"(?:javascript|vbscript):", re.IGNORECASE)

Encode = Callable[[str], str]


def is_link(value: str) -> bool:
    """Whether a value may begin a URL: relative, or of a scheme that mail and its readers use."""
    scheme = _SCHEME.match(_DROPPED.sub("", value).lstrip(_TRIMMED))
    return scheme is None or scheme[0][:-1].lower() in _SCHEMES


def encode_link(value: str) -> str:
    """A whole URL for a quoted attribute; `#` where it is none that may be followed."""
    return markupsafe.escape(value) if is_link(value) else _NO_LINK


def runs_script(before: str) -> bool:
    """Whether a URL begun so is a script, where percent-encoding is undone before the script is read."""
    return _SCRIPT.match(_DROPPED.sub("", before).lstrip(_TRIMMED)) is not None


def encoder(before: str) -> Encode:
    """The encoding of a value in a URL of which `before` is there already; not empty."""
    return _ENCODERS[_kept(_DROPPED.sub("", before).lstrip(_TRIMMED).lower())]


def _kept(before: str) -> str:
    if "?" in before or "#" in before:
        return ""
    if before.startswith("mailto:"):
        return "@"
    if before.startswith("tel:"):
        return "+"
    authority = before.partition("//")[2] if "//" in before else None
    return ":/" if authority is not None and "/" not in authority else "/"


def _encoder(kept: str) -> Encode:
    # What `quote` gives is of letters, digits, %, - . _ ~ and `kept`: nothing of it needs an HTML escape.
    return lambda value: quote(value, safe=kept)


_ENCODERS = {kept: _encoder(kept) for kept in ("", "@", "+", ":/", "/")}

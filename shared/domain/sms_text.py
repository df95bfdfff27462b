r"""
How many segments an SMS takes: what it is billed by, and what the carriers' limits count.

A text whose characters are all in the GSM 7-bit alphabet has 160 septets in one segment, or 153 in each part of
several; characters of the extension table (`^ { } \ [ ~ ] | €` and form feed) take two. Any other character
makes the whole text UCS-2: 70 UTF-16 units alone, 67 in each part, two for characters beyond the BMP (emoji).
A pair of septets or units is never cut by the end of a part, so a part may stay one short.

The text is counted as it is given: CR LF is two characters, and no character is replaced by a similar one.
National language tables are not used, since providers do not say when they would be.

Source: 3GPP TS 23.038 §6.2.1 (alphabets), 3GPP TS 23.040 §9.2.3.24.1 (140 octets, 6 of them for the header of a part).
"""

import re
from typing import Literal, NamedTuple

Encoding = Literal["GSM-7", "UCS-2"]

#: septets or UTF-16 units in the only segment, and in each part of several.
GSM_SINGLE, GSM_PART = 160, 153
UCS_SINGLE, UCS_PART = 70, 67

_BASIC = (
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?"
    "¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà"
)
_EXTENDED = "\f^{}\\[~]|€"

_GSM_TEXT = re.compile(f"[{re.escape(_BASIC + _EXTENDED)}]*")
_GSM_PAIRED = re.compile(f"[{re.escape(_EXTENDED)}]")
_UCS_PAIRED = re.compile("[\U00010000-\U0010ffff]")


class SegmentCount(NamedTuple):
    """`units` are septets in GSM-7 and UTF-16 units in UCS-2. An empty text has no segment."""

    encoding: Encoding
    units: int
    segments: int


def segments(text: str) -> SegmentCount:
    """Count the units and segments of a text as it will be sent."""
    if _GSM_TEXT.fullmatch(text):
        return _count(text, "GSM-7", _GSM_PAIRED, single=GSM_SINGLE, part=GSM_PART)
    return _count(text, "UCS-2", _UCS_PAIRED, single=UCS_SINGLE, part=UCS_PART)


def _count(text: str, encoding: Encoding, paired: re.Pattern[str], *, single: int, part: int) -> SegmentCount:
    pairs = [match.start() for match in paired.finditer(text)]
    units = len(text) + len(pairs)
    if units <= single:
        return SegmentCount(encoding, units, 1 if units else 0)
    wasted = 0
    for earlier_pairs, position in enumerate(pairs):
        # The pair's first unit would be the last of its part: the part ends before it.
        if (position + earlier_pairs + wasted) % part == part - 1:
            wasted += 1
    return SegmentCount(encoding, units, -(-(units + wasted) // part))

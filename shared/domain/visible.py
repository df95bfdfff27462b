"""Text from outside, for a terminal or a line of a log: control characters are shown, not obeyed."""

import re

#: C0, DEL, C1, line and paragraph separators, and what turns the direction of writing (Unicode TR9 §2): with these a
#: value could move the cursor, forge a line, or read otherwise than it is. Single characters, so no cut can halve one.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    r"""Write each control character, newlines and tabs too, and each lone surrogate as an escape such as `\x1b`."""
    return (
        _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
        .encode("utf-8", "backslashreplace")
        .decode()
    )

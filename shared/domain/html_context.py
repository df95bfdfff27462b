"""
Where in an HTML template a value may stand.

Escaping `& < > " '` makes a value harmless in text and inside a quoted attribute, and nowhere else. So the
other places are refused when the template is compiled:

- inside `<script>` and `<style>` (entities are not decoded there),
- as, or in, a tag name or an attribute name, or right behind `<`,
- in an attribute value without quotes (a space in the value would begin a new attribute),
- in an event handler (`onclick="…"`: entities are decoded there before the script is read).

- in a script's URL (`href="javascript:…"`: percent-encoding is undone there before the script is read).

Where a value stands in a URL, it is noted with what the URL begins with, for `url_places`. Comments are allowed,
since `>` of a value is escaped; a URL in one (as for old Outlook) is not known as a URL.

This guards against a value breaking out, not against a tenant's own template: the branches of an `if` are
read one after the other, as if all of them were shown.
"""

import re
from collections.abc import Callable

from shared.domain.url_places import URL_ATTRIBUTES, runs_script

#: Stands for a placeholder in the text that is scanned; no template can contain it, NUL being refused.
MARK = "\0"

_OPENING = re.compile(r"<(?:(!--)|(/?)([A-Za-z\0][^\s/>]*))")
_ATTRIBUTE = re.compile(
    r"""[\s/]*
        (?P<name>[^\s/>][^\s/>=]*)
        (?:\s*=\s*(?P<value>"[^"]*(?:"|\Z)|'[^']*(?:'|\Z)|[^\s>]*))?""",
    re.VERBOSE,
)
_RAW_TEXT_END = {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in ("script", "style")}


#: Told the end of each URL's beginning, by the positions of its first character and of a placeholder in it.
NoteUrl = Callable[[int, int], None]


def find_unsafe_placeholder(markup: str, note_url: NoteUrl = lambda _start, _at: None) -> tuple[int, str] | None:
    """
    Find the first placeholder that escaping would not make safe.

    One pass over the text, linear in its length.

    Args:
        markup: the template's text with MARK in the place of each placeholder.
        note_url: called for each placeholder in a URL with where the URL starts and where the placeholder is.

    Returns:
        Its ordinal among the marks, from 0, and what to do about it; None when all are safe.
    """
    position = 0
    while opening := _OPENING.search(markup, position):
        if opening[1]:
            end = markup.find("-->", opening.end())
            position = len(markup) if end < 0 else end
            continue
        if MARK in opening[3]:
            return _unsafe(markup, opening.start(3), "write a literal < as &lt;; a tag's name cannot be a value")
        position, found = _scan_attributes(markup, opening.end(), note_url)
        if found is None and not opening[2]:
            position, found = _scan_raw_text(markup, position, opening[3].lower())
        if found is not None:
            return found
    return None


def _scan_attributes(markup: str, position: int, note_url: NoteUrl) -> tuple[int, tuple[int, str] | None]:
    while attribute := _ATTRIBUTE.match(markup, position):
        name, value = attribute["name"], attribute["value"] or ""
        if MARK in name:
            return 0, _unsafe(markup, attribute.start("name"), "an attribute's name cannot be a value")
        if MARK in value:
            at = attribute.start("value")
            if value[0] not in "\"'":
                return 0, _unsafe(markup, at, f"put quotes around the value of {name}")
            if name.lower().startswith("on"):
                return 0, _unsafe(markup, at, f"the event handler {name} cannot contain a value")
            if name.lower() in URL_ATTRIBUTES:
                if runs_script(value[1:]):
                    return 0, _unsafe(markup, at, f"a script in {name} cannot contain a value")
                for found in re.finditer(MARK, value):
                    note_url(at + 1, at + found.start())
        position = attribute.end()
    return position, None


def _scan_raw_text(markup: str, position: int, name: str) -> tuple[int, tuple[int, str] | None]:
    if (closing := _RAW_TEXT_END.get(name)) is None:
        return position, None
    start = markup.find(">", position) + 1 or len(markup)
    end = closing.search(markup, start)
    stop = len(markup) if end is None else end.start()
    if (at := markup.find(MARK, start, stop)) >= 0:
        return 0, _unsafe(markup, at, f"a <{name}> element cannot contain a value")
    return stop, None


def _unsafe(markup: str, start: int, remedy: str) -> tuple[int, str]:
    return markup.count(MARK, 0, markup.index(MARK, start)), remedy

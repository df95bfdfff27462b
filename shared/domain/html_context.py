"""
Where in an HTML template a value may stand.

Escaping `& < > " '` makes a value harmless in text and inside a quoted attribute, and nowhere else. So the
other places are refused when the template is compiled:

- inside `<script>` and `<style>` (entities are not decoded there),
- as, or in, a tag name or an attribute name, or right behind `<`,
- in an attribute value without quotes (a space in the value would begin a new attribute),
- in an event handler (`onclick="…"`: entities are decoded there before the script is read),
- in an attribute that holds more than one text or URL: `style`, `srcset` and their like (entities are decoded there
  before what separates the parts is read),
- in a comment (what it means is up to whoever reads it),
- in a script's URL (`href="javascript:…"`: percent-encoding is undone there before the script is read).

Where a value stands in a URL, it is noted with what the URL begins with, for `url_places`. What a conditional comment
holds for old Outlook (`<!--[if mso]>…<![endif]-->`) is markup like any other.

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
_CONDITION = re.compile(r"\[if[^\]\0]*\]>", re.IGNORECASE)
#: Attributes with a syntax of their own, in which a value could begin another part.
_OF_PARTS = {
    "style": "styles",
    "srcset": "URLs",
    "imagesrcset": "URLs",
    "ping": "URLs",
    "srcdoc": "a document",
}
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
    return _find(markup, 0, len(markup), note_url)


def _find(
    markup: str, position: int, stop: int, note_url: NoteUrl, *, in_comment: bool = False
) -> tuple[int, str] | None:
    """Like `find_unsafe_placeholder`, between two positions. No comment begins in a comment."""
    while opening := _OPENING.search(markup, position, stop):
        if opening[1] and in_comment:
            position, found = opening.end(), None
        elif opening[1]:
            position, found = _scan_comment(markup, opening.end(), stop, note_url)
        elif MARK in opening[3]:
            return _unsafe(markup, opening.start(3), "write a literal < as &lt;; a tag's name cannot be a value")
        else:
            position, found = _scan_attributes(markup, opening.end(), stop, note_url)
            if found is None and not opening[2]:
                position, found = _scan_raw_text(markup, position, stop, opening[3].lower())
        if found is not None:
            return found
    return None


def _scan_comment(markup: str, position: int, stop: int, note_url: NoteUrl) -> tuple[int, tuple[int, str] | None]:
    end = markup.find("-->", position, stop)
    end = stop if end < 0 else end
    if condition := _CONDITION.match(markup, position, end):
        return end, _find(markup, condition.end(), end, note_url, in_comment=True)
    if (at := markup.find(MARK, position, end)) >= 0:
        return end, _unsafe(markup, at, "a comment cannot contain a value")
    return end, None


def _scan_attributes(markup: str, position: int, stop: int, note_url: NoteUrl) -> tuple[int, tuple[int, str] | None]:
    while attribute := _ATTRIBUTE.match(markup, position, stop):
        name, value = attribute["name"], attribute["value"] or ""
        if MARK in name:
            return 0, _unsafe(markup, attribute.start("name"), "an attribute's name cannot be a value")
        if MARK in value:
            at = attribute.start("value")
            if value[0] not in "\"'":
                return 0, _unsafe(markup, at, f"put quotes around the value of {name}")
            if name.lower().startswith("on"):
                return 0, _unsafe(markup, at, f"the event handler {name} cannot contain a value")
            if name.lower() in _OF_PARTS:
                return 0, _unsafe(markup, at, f"{name} holds {_OF_PARTS[name.lower()]} and cannot contain a value")
            if name.lower() in URL_ATTRIBUTES:
                if runs_script(value[1:]):
                    return 0, _unsafe(markup, at, f"a script in {name} cannot contain a value")
                for found in re.finditer(MARK, value):
                    note_url(at + 1, at + found.start())
        position = attribute.end()
    return position, None


def _scan_raw_text(markup: str, position: int, limit: int, name: str) -> tuple[int, tuple[int, str] | None]:
    if (closing := _RAW_TEXT_END.get(name)) is None:
        return position, None
    start = markup.find(">", position, limit) + 1 or limit
    end = closing.search(markup, start, limit)
    stop = limit if end is None else end.start()
    if (at := markup.find(MARK, start, stop)) >= 0:
        return 0, _unsafe(markup, at, f"a <{name}> element cannot contain a value")
    return stop, None


def _unsafe(markup: str, start: int, remedy: str) -> tuple[int, str]:
    return markup.count(MARK, 0, markup.index(MARK, start)), remedy

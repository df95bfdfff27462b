"""
Where in an HTML template a value may stand.

Escaping `& < > " '` makes a value harmless in text and inside a quoted attribute, and nowhere else. So the
other places are refused when the template is compiled:

- inside `<script>` and `<style>` (entities are not decoded there),
- as, or in, a tag name or an attribute name, or right behind `<`,
- in an attribute value without quotes (a space in the value would begin a new attribute),
- in an event handler (`onclick="…"`: entities are decoded there before the script is read).

A value at the start of `href` or `src` is allowed: a link of the tenant's own is what most notifications are
about, and mail clients run no `javascript:` links. Comments are allowed, since `>` of a value is escaped.

This guards against a value breaking out, not against a tenant's own template: the branches of an `if` are
read one after the other, as if all of them were shown.
"""

import re

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


def find_unsafe_placeholder(markup: str) -> tuple[int, str] | None:
    """
    Find the first placeholder that escaping would not make safe.

    One pass over the text, linear in its length.

    Args:
        markup: the template's text with MARK in the place of each placeholder.

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
        position, found = _scan_attributes(markup, opening.end())
        if found is None and not opening[2]:
            position, found = _scan_raw_text(markup, position, opening[3].lower())
        if found is not None:
            return found
    return None


def _scan_attributes(markup: str, position: int) -> tuple[int, tuple[int, str] | None]:
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

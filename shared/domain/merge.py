"""
Merge: one content, many recipients.

    Dear {{ name }},                        a parameter; a recipient without it is refused at acceptance
    Hello {{ name | default("friend") }}    text for a missing or null parameter; default("friend", true)
                                            also replaces an empty one
    {% if vip %}…{% elif tier == "gold" %}…{% else %}…{% endif %}
                                            also with not, and, or, !=
    {# not sent #}

That is the whole language (`merge_syntax`); names and values are those of `merge_values`. A value is put in
once, and never read as a template again: in html it is escaped, and in a URL percent-encoded (`url_places`);
elsewhere it is verbatim. The template's own
text, its white space and its line ends are kept as written. A fallback stands for a value and is treated as one.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import markupsafe

from shared.domain.html_context import MARK, find_unsafe_placeholder
from shared.domain.merge_syntax import (
    MAX_TEMPLATE_CHARS,
    Body,
    Choice,
    Params,
    Slot,
    TemplateError,
    parse,
)
from shared.domain.merge_values import check_param_value, normalise_name, normalise_params, show
from shared.domain.url_places import LARGEST_ENCODING, encode_link, encoder, is_link

__all__ = [
    "MAX_TEMPLATE_CHARS",
    "MissingParam",
    "Template",
    "TemplateError",
    "check_param_value",
    "compile_template",
    "normalise_name",
    "normalise_params",
]

_Escape = Callable[[str], str]

#: characters of the longest escape in html: `"` is `&#34;`.
_LARGEST_ESCAPE = 5


class MissingParam(LookupError):  # noqa: N818 - what it is, not that it is an error
    """Rendering met a parameter that is missing or null; `Template.missing` tells so at acceptance."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the parameter {name} is missing")
        self.name = name


@dataclass(frozen=True, slots=True)
class Template:
    """
    A compiled template; `compile_template` makes it. Immutable, and safe to share between threads.

    The parameters given to it have passed `normalise_params`: their names are compared as they are.
    """

    #: every parameter the template mentions, also in conditions
    names: frozenset[str]
    #: parameters without which no recipient can be rendered, whatever the conditions come to
    required: frozenset[str]
    has_conditions: bool
    #: parameters that begin a URL somewhere: each is asked about by `not_links`
    links: frozenset[str]
    #: characters that one character of a value may become
    growth: int
    _body: Body = field(repr=False)
    _render: Callable[[Params], str] = field(repr=False)

    def render(self, params: Params) -> str:
        """
        Give the text for one recipient.

        Raises:
            MissingParam: a needed parameter is missing or null.
        """
        return self._render(params)

    def missing(self, params: Params) -> tuple[str, ...]:
        """Name what this recipient lacks, in the order of the template; empty when it can be rendered."""
        if not self.has_conditions and self.required <= params.keys() and None not in params.values():
            return ()
        return tuple(dict.fromkeys(_walk_missing(self._body, params)))

    def not_links(self, params: Params) -> tuple[str, ...]:
        """Name the parameters that begin a URL and must not: not relative, nor http, https, mailto or tel."""
        shown = ((name, params.get(name)) for name in sorted(self.links))
        return tuple(name for name, value in shown if value is not None and not is_link(show(value)))


def compile_template(source: str, *, kind: Literal["text", "html"]) -> Template:
    """
    Compile a template once, to be rendered for every recipient.

    Args:
        source: the template as its author wrote it.
        kind: "html" escapes values and checks the places they stand in; "text" is for text parts, subjects
            and SMS. A rendered subject still has to pass `check_header_text`.

    Raises:
        TemplateError: syntax outside the language, too large, or a placeholder where no value is safe.
    """
    syntax = parse(source)
    in_urls = _check_places(syntax.body) if kind == "html" else {}
    plain: _Escape = markupsafe.escape if kind == "html" else str
    growth = LARGEST_ENCODING if in_urls else _LARGEST_ESCAPE if kind == "html" else 1

    def escape(slot: Slot) -> _Escape:
        return in_urls.get(id(slot), (slot, plain))[1]

    has_conditions = any(isinstance(part, Choice) for part in syntax.body)
    return Template(
        names=syntax.names,
        required=frozenset(_walk_required(syntax.body)),
        has_conditions=has_conditions,
        links=frozenset(slot.name for slot, encode in in_urls.values() if encode is encode_link),
        growth=growth,
        _body=syntax.body,
        _render=_branching(syntax.body, escape) if has_conditions else _flat(syntax.body, escape),
    )


def _flat(body: Body, escape_of: Callable[[Slot], _Escape]) -> Callable[[Params], str]:
    """
    Render a template without conditions: copy the list of parts, fill its gaps, join.

    Every recipient of a send passes here, 2 µs each for 1.2 kB with two parameters; hence the single loop.
    """
    parts = [part if isinstance(part, str) else "" for part in body]
    gaps = [
        (at, slot.name, None if slot.fallback is None else escape(slot.fallback), slot.if_empty, escape)
        for at, slot in enumerate(body)
        if isinstance(slot, Slot)
        for escape in (escape_of(slot),)
    ]

    def render(params: Params) -> str:
        filled = parts.copy()
        for at, name, fallback, if_empty, escape in gaps:
            value = params.get(name)
            if value is None or (if_empty and value == ""):
                if fallback is None:
                    raise MissingParam(name)
                filled[at] = fallback
            else:
                filled[at] = escape(value if type(value) is str else show(value))
        return "".join(filled)

    return render


def _branching(body: Body, escape: Callable[[Slot], _Escape]) -> Callable[[Params], str]:
    """Render a template with conditions: stretches without are rendered as above."""
    stretches: list[Callable[[Params], str]] = []
    plain: list[str | Slot | Choice] = []
    for part in (*body, None):
        if isinstance(part, (str, Slot)):
            plain.append(part)
            continue
        if plain:
            stretches.append(_flat(tuple(plain), escape))
            plain = []
        if part is not None:
            stretches.append(_choosing(part, escape))
    return lambda params: "".join([render(params) for render in stretches])


def _choosing(choice: Choice, escape: Callable[[Slot], _Escape]) -> Callable[[Params], str]:
    branches = [(test, _branching(body, escape)) for test, body in choice.branches]
    otherwise = _branching(choice.otherwise, escape)

    def render(params: Params) -> str:
        for test, branch in branches:
            if test(params):
                return branch(params)
        return otherwise(params)

    return render


def _walk_missing(body: Body, params: Params) -> Iterator[str]:
    for part in body:
        if isinstance(part, Slot):
            if part.fallback is None and params.get(part.name) is None:
                yield part.name
        elif isinstance(part, Choice):
            chosen = next((shown for test, shown in part.branches if test(params)), part.otherwise)
            yield from _walk_missing(chosen, params)


def _walk_required(body: Body) -> Iterator[str]:
    for part in body:
        if isinstance(part, Slot) and part.fallback is None:
            yield part.name
        elif isinstance(part, Choice):
            bodies = (part.otherwise, *(shown for _, shown in part.branches))
            yield from frozenset.intersection(*(frozenset(_walk_required(shown)) for shown in bodies))


#: characters of a URL, beyond which a value in it is encoded as in a query, the strictest way.
_LONG_URL = 4_096

#: A choice's start and one of its branches', as positions in the text of all branches one after the other.
_Skips = tuple[tuple[int, int], ...]


def _walk_places(body: Body, at: int = 0, skips: _Skips = ()) -> Iterator[tuple[str | Slot, _Skips]]:
    """Every text and placeholder in order, each with the stretches of other branches that are not shown before it."""
    for part in body:
        if isinstance(part, Choice):
            start = at
            for shown in (*(shown for _, shown in part.branches), part.otherwise):
                for inner, inner_skips in _walk_places(shown, at, (*skips, (start, at))):
                    yield inner, inner_skips
                    at += len(inner) if isinstance(inner, str) else len(MARK)
        else:
            yield part, skips
            at += len(part) if isinstance(part, str) else len(MARK)


def _check_places(body: Body) -> dict[int, tuple[Slot, _Escape]]:
    """Refuse placeholders where no value is safe; the encodings of those in URLs, by the identity of their slots."""
    places = list(_walk_places(body))
    markup = "".join(MARK if isinstance(part, Slot) else part for part, _ in places)
    in_urls: dict[int, int] = {}
    found = find_unsafe_placeholder(markup, lambda start, at: in_urls.__setitem__(at, start))
    slots = [(part, skips) for part, skips in places if isinstance(part, Slot)]
    if found is not None:
        ordinal, remedy = found
        slot = slots[ordinal][0]
        raise TemplateError(f"{{{{ {slot.name} }}}} cannot stand here: {remedy}", line=slot.line)
    if not in_urls:
        return {}
    encodings: dict[int, tuple[Slot, _Escape]] = {}
    at = -1
    for slot, skips in slots:
        at = markup.index(MARK, at + 1)
        if at in in_urls:
            long = at - in_urls[at] > _LONG_URL  # every placeholder looks at all that stands before it
            before = "?" if long else _shown_before(markup, in_urls[at], at, skips)
            encodings[id(slot)] = slot, encoder(before) if before.strip() else encode_link
    return encodings


def _shown_before(markup: str, start: int, at: int, skips: _Skips) -> str:
    """What a URL holds before a placeholder; what stands before it in other branches is not shown with it."""
    pieces = []
    for skip_from, skip_to in skips:
        if skip_from > start:
            pieces.append(markup[start:skip_from])
        start = max(start, skip_to)
    return "".join((*pieces, markup[start:at]))

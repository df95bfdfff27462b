"""
Merge: one content, many recipients.

    Dear {{ name }},                        a parameter; a recipient without it is refused at acceptance
    Hello {{ name | default("friend") }}    text for a missing or null parameter; default("friend", true)
                                            also replaces an empty one
    {% if vip %}…{% elif tier == "gold" %}…{% else %}…{% endif %}
                                            also with not, and, or, !=
    {# not sent #}

That is the whole language (`merge_syntax`); names and values are those of `merge_values`. A value is put in
once, and never read as a template again: in html it is escaped, elsewhere it is verbatim. The template's own
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
    if kind == "html":
        _check_places(syntax.body)
    escape: _Escape = markupsafe.escape if kind == "html" else str
    has_conditions = any(isinstance(part, Choice) for part in syntax.body)
    return Template(
        names=syntax.names,
        required=frozenset(_walk_required(syntax.body)),
        has_conditions=has_conditions,
        _body=syntax.body,
        _render=_branching(syntax.body, escape) if has_conditions else _flat(syntax.body, escape),
    )


def _flat(body: Body, escape: _Escape) -> Callable[[Params], str]:
    """
    Render a template without conditions: copy the list of parts, fill its gaps, join.

    Every recipient of a send passes here, 2 µs each for 1.2 kB with two parameters; hence the single loop.
    """
    parts = [part if isinstance(part, str) else "" for part in body]
    gaps = [
        (at, slot.name, None if slot.fallback is None else escape(slot.fallback), slot.if_empty)
        for at, slot in enumerate(body)
        if isinstance(slot, Slot)
    ]

    def render(params: Params) -> str:
        filled = parts.copy()
        for at, name, fallback, if_empty in gaps:
            value = params.get(name)
            if value is None or (if_empty and value == ""):
                if fallback is None:
                    raise MissingParam(name)
                filled[at] = fallback
            else:
                filled[at] = escape(value if type(value) is str else show(value))
        return "".join(filled)

    return render


def _branching(body: Body, escape: _Escape) -> Callable[[Params], str]:
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


def _choosing(choice: Choice, escape: _Escape) -> Callable[[Params], str]:
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


def _walk_places(body: Body) -> Iterator[str | Slot]:
    for part in body:
        if isinstance(part, Choice):
            for shown in (*(shown for _, shown in part.branches), part.otherwise):
                yield from _walk_places(shown)
        else:
            yield part


def _check_places(body: Body) -> None:
    places = list(_walk_places(body))
    found = find_unsafe_placeholder("".join(MARK if isinstance(part, Slot) else part for part in places))
    if found is not None:
        ordinal, remedy = found
        slot = [part for part in places if isinstance(part, Slot)][ordinal]
        raise TemplateError(f"{{{{ {slot.name} }}}} cannot stand here: {remedy}", line=slot.line)

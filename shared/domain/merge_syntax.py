"""
The language of merge templates: from the text to a checked list of parts.

Jinja2's sandboxed environment is used as a parser only. What it returns is walked over a list of allowed nodes;
everything else is refused with its line and a remedy. Nothing of a template is ever executed.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from jinja2 import TemplateSyntaxError, nodes
from jinja2.ext import Extension
from jinja2.lexer import Token, TokenStream
from jinja2.sandbox import SandboxedEnvironment

from shared.domain.merge_values import MAX_NAME_CHARS, equals, holds, normalise_name, show
from shared.domain.text_checks import check_storable

#: characters; an e-mail of 2 MB passes, the largest takes about 0.1 s to parse.
MAX_TEMPLATE_CHARS = 3_000_000

#: tokens; a placeholder is four. Bounds what a hostile template costs to about a quarter of a second.
MAX_TOKENS = 20_000

#: levels of `if` within `if`, or of `not` and brackets within a condition.
MAX_DEPTH = 20

Params = Mapping[str, object]
Test = Callable[[Params], bool]


class TemplateError(ValueError):
    """A template that cannot be used. Its text names the line, from 1, and the remedy."""

    def __init__(self, problem: str, *, line: int = 1) -> None:
        super().__init__(f"line {line}: {problem}")
        self.line = line
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Slot:
    """A parameter's place. `fallback` stands for a missing value, and with `if_empty` for an empty one too."""

    name: str
    line: int
    fallback: str | None = None
    if_empty: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """An `if` with its `elif`s, in order, and what is shown when none of the tests holds."""

    branches: tuple[tuple[Test, "Body"], ...]
    otherwise: "Body"


Body = tuple["str | Slot | Choice", ...]


@dataclass(frozen=True, slots=True)
class Syntax:
    """What a template says: its parts in order, and every name in it, those of conditions included."""

    body: Body
    names: frozenset[str]


def parse(source: str) -> Syntax:
    """
    Read a template.

    Raises:
        TemplateError: too large, not well-formed, or outside the language.
    """
    if len(source) > MAX_TEMPLATE_CHARS:
        raise TemplateError(f"the template is longer than {MAX_TEMPLATE_CHARS:,} characters; shorten it")
    if (problem := check_storable(source)) is not None:
        raise TemplateError(f"the template {problem}")
    _check_single_braces(source)
    carriage_return = _stand_in(source)
    reader = _Reader(carriage_return)
    try:
        tree = _parse_tree(source.replace("\r\n", carriage_return + "\n").replace("\r", carriage_return))
        return Syntax(body=reader.body(tree.body, depth=0), names=frozenset(reader.names))
    except TemplateError as error:
        if (spelling := _spelling(source, error.line)) is not None:
            raise TemplateError(spelling, line=error.line) from None
        raise


class _TokenLimit(Extension):
    """Stops the lexer of a hostile template early; both it and the parser are lazy."""

    def filter_stream(self, stream: TokenStream) -> Iterator[Token]:
        for count, token in enumerate(stream):
            if count > MAX_TOKENS:
                raise TemplateSyntaxError("the template has too many placeholders; shorten it", token.lineno)
            yield token


_ENVIRONMENT = SandboxedEnvironment(keep_trailing_newline=True, extensions=[_TokenLimit])


def _parse_tree(source: str) -> nodes.Template:
    try:
        return _ENVIRONMENT.parse(source)
    except TemplateSyntaxError as error:
        raise TemplateError(error.message or "the template is not well-formed", line=error.lineno) from None
    except RecursionError:
        raise TemplateError("the template is nested too deeply; simplify it") from None
    except (ValueError, OverflowError):  # a number literal of thousands of digits
        raise TemplateError("a number in the template is too long; write it as text") from None


def _stand_in(source: str) -> str:
    # Jinja2 turns every line end into "\n" while it reads. CR is written as another white space meanwhile.
    for candidate in "\x1f\x1e\x1d\x1c":
        if candidate not in source:
            return candidate
    raise TemplateError("the template contains the control characters U+001C to U+001F; remove them")


#: `{ name }}`, or `{name}}`: a brace is missing, and recipients would see it. CSS and JSON do not look like this.
_SINGLE_BRACE = re.compile(r"(?<!\{)\{[ \t]*[A-Za-z_]\w*[ \t]*\}\}")


def _check_single_braces(source: str) -> None:
    if typo := _SINGLE_BRACE.search(source):
        line = source.count("\n", 0, typo.start()) + 1
        raise TemplateError("a placeholder begins with one brace; write {{ name }}", line=line)


#: A column's header put in as it is, in a placeholder or a condition: words that are no one name for the parser.
_HEADER = re.compile(
    r"""(?:\{\{[-+]?|\{%[-+]?[ ]*(?:el)?if[ ])[ \t]*
        (\w{1,64}(?:[ \t\u00a0#?&:/-]{1,8}\w{1,64}){0,15}[ \t]?[#?:]?)
        [ \t]*(?:\||[=!]=|[-+]?[}%]\})""",
    re.VERBOSE,
)
_NO_NAMES = frozenset(("and", "or", "not", "if", "else", "is", "in"))


def _spelling(source: str, line: int) -> str | None:
    """How to write the first name on a line that is no name as it is written; None where that is not what is wrong."""
    text = next(islice(source.split("\n"), line - 1, None), "")
    for written in (found[1] for found in _HEADER.finditer(text)):
        name = normalise_name(written)
        if (
            written.strip().isidentifier()
            or not _NO_NAMES.isdisjoint(written.lower().split())
            or not _LETTER.search(name)
        ):
            continue
        name = name if name.isidentifier() else f"_{name}"
        return f'write "{written.strip()}" as {name}: a name in a template is letters, digits and _ only'
    return None


_LETTER = re.compile(r"[^\W\d_]")

_REMEDIES: dict[type[nodes.Node], str] = {
    nodes.Getattr: "names have no attributes here; pass the part you need as a parameter of its own",
    nodes.Getitem: "names have no items here; pass the part you need as a parameter of its own",
    nodes.Call: "calls are not offered; pass the finished text as a parameter",
    nodes.Filter: 'the only filter is default, as in {{ name | default("friend") }}',
    nodes.Test: "tests with `is` are not offered; write {% if name %}, which is false when name is missing",
    nodes.CondExpr: "write {% if name %}…{% else %}…{% endif %} instead of an inline if",
    nodes.For: "loops are not offered; pass the finished text as a parameter",
    nodes.Assign: "variables cannot be set; pass a parameter",
    nodes.Const: "a constant is not a placeholder; write its text directly",
    nodes.Compare: 'compare a name with one constant by == or !=, as in {% if tier == "gold" %}',
}
_OTHERWISE = "only names, default, and if with not, and, or, == and != are offered"


class _Reader:
    """Walks the tree once; keeps the names it met."""

    def __init__(self, carriage_return: str) -> None:
        self._carriage_return = carriage_return
        self.names: set[str] = set()

    def body(self, statements: Sequence[nodes.Node], *, depth: int) -> Body:
        return tuple(_join_texts(part for node in statements for part in self._parts(node, depth)))

    def _parts(self, node: nodes.Node, depth: int) -> Iterator[str | Slot | Choice]:
        if isinstance(node, nodes.Output):
            for item in node.nodes:
                yield self._text(item) if isinstance(item, nodes.TemplateData) else self._slot(item)
        elif isinstance(node, nodes.If):
            yield self._choice(node, depth + 1)
        else:
            raise _refusal(node)

    def _text(self, node: nodes.TemplateData) -> str:
        if any(opening in node.data for opening in ("{{", "{%", "{#")):
            raise TemplateError("placeholder syntax cannot be quoted with raw; leave it out", line=node.lineno)
        return self._restore(node.data)

    def _restore(self, text: str) -> str:
        return text.replace(self._carriage_return, "\r")

    def _slot(self, node: nodes.Expr) -> Slot:
        if isinstance(node, nodes.Name):
            return Slot(self._name(node), node.lineno)
        if not isinstance(node, nodes.Filter) or node.name not in ("default", "d"):
            raise _refusal(node)
        if not isinstance(node.node, nodes.Name):
            raise _refusal(node.node) if node.node is not None else _refusal(node)
        fallback, *more = [self._constant(argument) for argument in node.args] or [""]
        if node.kwargs or node.dyn_args or node.dyn_kwargs or more not in ([], [True], [False]):
            raise TemplateError('write default("friend"), or default("friend", true)', line=node.lineno)
        return Slot(self._name(node.node), node.lineno, fallback=show(fallback), if_empty=more == [True])

    def _name(self, node: nodes.Name) -> str:
        name = normalise_name(node.name)
        if not name or len(name) > MAX_NAME_CHARS:
            problem = f"a name has 1 to {MAX_NAME_CHARS} characters, with a letter or digit among them"
            raise TemplateError(problem, line=node.lineno)
        self.names.add(name)
        return name

    def _constant(self, node: nodes.Expr) -> str | int | float:
        value = node.value if isinstance(node, nodes.Const) else None
        if isinstance(value, str):
            problem = check_storable(value)
            if problem is None and not any(syntax in value for syntax in ("{{", "{%", "{#", "}}", "%}")):
                return self._restore(value)
            raise TemplateError(
                "a constant cannot contain placeholder syntax, NUL or half characters", line=node.lineno
            )
        if isinstance(value, (int, float)) and abs(value) < 10**15:
            return value
        raise TemplateError('a constant is text ("…"), a number below 10^15, true or false', line=node.lineno)

    def _choice(self, node: nodes.If, depth: int) -> Choice:
        if depth > MAX_DEPTH:
            raise TemplateError(f"if is nested more than {MAX_DEPTH} deep; simplify it", line=node.lineno)
        branches = tuple(
            (self._test(branch.test, 0), self.body(branch.body, depth=depth)) for branch in (node, *node.elif_)
        )
        return Choice(branches, otherwise=self.body(node.else_, depth=depth))

    def _test(self, node: nodes.Node, depth: int) -> Test:
        if depth > MAX_DEPTH:
            raise TemplateError("a condition is nested too deeply; simplify it", line=node.lineno)
        if isinstance(node, nodes.Name):
            name = self._name(node)
            return lambda params: holds(params.get(name))
        if isinstance(node, nodes.Not):
            inner = self._test(node.node, depth + 1)
            return lambda params: not inner(params)
        if isinstance(node, (nodes.And, nodes.Or)):
            left, right = self._test(node.left, depth + 1), self._test(node.right, depth + 1)
            if isinstance(node, nodes.And):
                return lambda params: left(params) and right(params)
            return lambda params: left(params) or right(params)
        return self._comparison(node)

    def _comparison(self, node: nodes.Node) -> Test:
        if not isinstance(node, nodes.Compare) or len(node.ops) != 1 or node.ops[0].op not in ("eq", "ne"):
            raise _refusal(node)
        sides = (node.expr, node.ops[0].expr)
        names = [side for side in sides if isinstance(side, nodes.Name)]
        constants = [side for side in sides if isinstance(side, nodes.Const)]
        if len(names) != 1 or len(constants) != 1:
            raise _refusal(node)
        name, constant = self._name(names[0]), self._constant(constants[0])
        wanted = node.ops[0].op == "eq"
        return lambda params: equals(params.get(name), constant) is wanted


def _join_texts(parts: Iterable[str | Slot | Choice]) -> Iterator[str | Slot | Choice]:
    """Make one text of neighbouring texts (a comment stood between them), so that rendering joins fewer."""
    held = ""
    for part in parts:
        if isinstance(part, str):
            held += part
            continue
        if held:
            yield held
            held = ""
        yield part
    if held:
        yield held


def _refusal(node: nodes.Node) -> TemplateError:
    return TemplateError(_REMEDIES.get(type(node), _OTHERWISE), line=node.lineno)

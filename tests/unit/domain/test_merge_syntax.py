"""What the template language refuses, and that nobody can make it run, hang or crash."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.domain.merge import MAX_TEMPLATE_CHARS, TemplateError, compile_template
from shared.domain.merge_syntax import MAX_DEPTH, MAX_TOKENS
from shared.domain.merge_values import normalise_name


@pytest.mark.parametrize("header", ["First Name", "E-mail address", "Order #", "1st choice", "Café / Bar?"])
def test_the_spelling_that_is_told_for_a_columns_header_names_that_column(header: str) -> None:
    told = re.search(r"as (\w+):", refusal("Hello\n{{ " + header + " }}").problem)
    assert told is not None
    assert compile_template("{{ " + told[1] + " }}", kind="text").names == {normalise_name(header)}


def refusal(source: str) -> TemplateError:
    with pytest.raises(TemplateError) as caught:
        compile_template(source, kind="text")
    return caught.value


@pytest.mark.parametrize(
    ("source", "remedy"),
    [
        ("{{ ''.__class__.__mro__ }}", "attributes"),
        ("{{ name.__class__ }}", "attributes"),
        ("{{ name['x'] }}", "items"),
        ("{{ config() }}", "calls"),
        ("{{ name | upper }}", "only filter is default"),
        ("{{ name | default('x') | upper }}", "only filter is default"),
        ("{{ name | default(other) }}", "constant"),
        ("{{ name | default('x', boolean=true) }}", "default"),
        ("{{ name | default('x', 'y') }}", "default"),
        ("{{ 'x' | default('y') }}", "constant"),
        ("{{ 'text' }}", "constant"),
        ("{{ 1 + 1 }}", "only names"),
        ("{{ a ~ b }}", "only names"),
        ("{{ a if b else c }}", "inline if"),
        ("{{ [1] }}", "only names"),
        ("{% for i in range(10**9) %}x{% endfor %}", "loops"),
        ("{% set a = 1 %}", "variables"),
        ("{% include 'x' %}", "only names"),
        ("{% extends 'x' %}", "only names"),
        ("{% macro m() %}{% endmacro %}", "only names"),
        ("{% block b %}{% endblock %}", "only names"),
        ("{% if a is defined %}{% endif %}", "tests with `is`"),
        ("{% if a > 1 %}{% endif %}", "one constant"),
        ("{% if a == b %}{% endif %}", "one constant"),
        ("{% if a == 1 == 2 %}{% endif %}", "one constant"),
        ("{% if f(a) %}{% endif %}", "calls"),
        ("{% raw %}{{ x }}{% endraw %}", "raw"),
        ('{{ x | default("{{ y }}") }}', "placeholder syntax"),
        ('{{ x | default("\\ud800") }}', "half"),
        ('{{ x | default("\\0") }}', "NUL"),
        ("{{ x | default(none) }}", "constant"),
        ("{{ x | default(1e999) }}", "constant"),
        pytest.param("{{ x | default(" + "9" * 5000 + ") }}", "number", id="5,000 digits"),
        ("{{ _ }}", "letter or digit"),
        ("{{ " + "n" * 65 + " }}", "64"),
        ("{{ First Name }}", 'write "First Name" as first_name'),
        ("{{ name }} {{ E-mail address | default('x') }}", "as e_mail_address"),
        ("{{- first-name -}}", "as first_name"),
        ("{{ Order # }}", "as order"),
        ("{{ 1st choice }}", "as _1st_choice"),
        ("{% if VIP Client == 'x' %}{% endif %}", "as vip_client"),
        ("{% if VIP Client %}{% endif %}", "as vip_client"),
        ("{{ name", "unexpected end"),
        ("{{ name }", "unexpected"),
        ("{% if a %}", "[Uu]nexpected end"),
        ("{% unknown %}", "unknown tag"),
        ("{# open", "end of comment"),
        ("Dear { name }},", r"\{\{ name \}\}"),
        ("\0", "NUL"),
        ("\ud800", "surrogate"),
    ],
)
def test_everything_outside_the_language_is_refused_with_a_remedy(source: str, remedy: str) -> None:
    with pytest.raises(TemplateError, match=remedy):
        compile_template(source, kind="text")


def test_a_refusal_names_the_line() -> None:
    assert refusal("a\r\nb\r\n{{ a.b }}").line == 3
    assert refusal("a\n{{ a").line == 2
    assert refusal("a\n\n{ name }}").line == 3
    assert str(refusal("\n{% set a = 1 %}")).startswith("line 2: ")


def test_names_of_the_program_are_ordinary_params() -> None:
    template = compile_template("{{ config }}{{ self }}{{ request }}", kind="text")
    assert template.missing({}) == ("config", "self", "request")


def test_a_template_of_five_megabytes_is_refused_and_one_of_two_is_not() -> None:
    assert "shorten" in refusal("x" * 5_000_000).problem
    assert compile_template("x" * 2_000_000 + "{{ a }}", kind="html").required == {"a"}
    assert MAX_TEMPLATE_CHARS < 5_000_000


def test_deep_nesting_is_refused() -> None:
    for depth, accepted in ((MAX_DEPTH, True), (MAX_DEPTH + 1, False)):
        source = "{% if a %}" * depth + "x" + "{% endif %}" * depth
        if accepted:
            assert compile_template(source, kind="text").render({"a": 1}) == "x"
        else:
            assert "nested" in refusal(source).problem


@pytest.mark.parametrize(
    "source",
    [
        "{{a}}" * (MAX_TOKENS // 2),
        "{% if " + "a or " * MAX_TOKENS + "a %}",
        "{{" + "(" * 100_000,
        "{% if " + "not " * 5_000 + "a %}x{% endif %}",
        "{% if a %}" * 4_000,
        "{{ a" + "|default" * 5_000 + " }}",
        "{" * 1_000_000,
        "{#" * 500_000,
    ],
    ids=lambda source: source[:12],
)
def test_a_hostile_template_is_refused_quickly(source: str) -> None:
    started = time.process_time()
    refusal(source)
    assert time.process_time() - started < 1.0  # seconds of processor; 0.1 at most where measured


_MARKS = ["{{", "}}", "{%", "%}", "{#", "#}", "{", "}", " ", "\r\n", "a", "b", "1", "'", '"', "\\", "(", ")", ".", "|"]
_WORDS = [
    "default",
    "if",
    "elif",
    "else",
    "endif",
    "not",
    "and",
    "or",
    "==",
    "!=",
    "<",
    ">",
    "=",
    "<script>",
    "raw",
    "-",
]
_PIECES = st.sampled_from([*_MARKS, *_WORDS])


@given(st.lists(_PIECES, max_size=30).map("".join), st.sampled_from(["text", "html"]))
@settings(max_examples=60, deadline=None)
def test_any_text_is_compiled_or_refused_and_no_placeholder_is_left(source: str, kind: str) -> None:
    try:
        template = compile_template(source, kind="html" if kind == "html" else "text")
    except TemplateError:
        return
    params = dict.fromkeys(template.names, "v")
    assert template.missing(params) == ()
    rendered = template.render(params)
    assert not any(syntax in rendered for syntax in ("{{", "{%", "{#"))

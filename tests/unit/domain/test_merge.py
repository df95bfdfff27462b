"""Merge as a sender meets it: what comes out for which parameters."""

import json
from decimal import Decimal
from html import unescape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.domain.merge import MissingParam, Template, compile_template


def text(source: str) -> Template:
    return compile_template(source, kind="text")


def html(source: str) -> Template:
    return compile_template(source, kind="html")


def from_json(document: str) -> object:
    return json.loads(document, parse_float=Decimal)


def test_a_value_is_put_in_verbatim_in_text() -> None:
    assert text("Dear {{ name }},").render({"name": "Jane & <Doe>"}) == "Dear Jane & <Doe>,"


def test_a_value_is_escaped_in_html_and_the_template_is_not() -> None:
    rendered = html('<p title="{{ name }}">{{ name }} &amp; co</p>').render({"name": "<b> & \"x\" 'y'"})
    value = "&lt;b&gt; &amp; &#34;x&#34; &#39;y&#39;"
    assert rendered == f'<p title="{value}">{value} &amp; co</p>'


def test_rendered_html_is_a_plain_string_that_nothing_will_escape_or_trust_again() -> None:
    assert type(html("{{ name }}").render({"name": "x"})) is str
    assert type(html("no value").render({})) is str


@pytest.mark.parametrize(
    ("document", "shown"),
    [
        ("0", "0"),
        ("false", "false"),
        ("true", "true"),
        ('""', ""),
        ("12", "12"),
        ("-3", "-3"),
        ("1.10", "1.10"),
        ("1e30", "1000000000000000000000000000000"),
        ("1.5e3", "1500"),
        ("0.0000001", "0.0000001"),
        ("1E-400", "1e-400"),
        ("-0.0", "-0.0"),
        ('"0"', "0"),
    ],
)
def test_a_value_is_shown_as_it_was_given(document: str, shown: str) -> None:
    assert text("[{{ v }}]").render({"v": from_json(document)}) == f"[{shown}]"
    assert html("[{{ v }}]").render({"v": from_json(document)}) == f"[{shown}]"


def test_floats_are_shown_like_the_decimals_they_were_written_as() -> None:
    assert text("{{ a }} {{ b }} {{ c }}").render({"a": 1.1, "b": 1e30, "c": 2.0}) == f"1.1 1{'0' * 30} 2.0"


@pytest.mark.parametrize("params", [{}, {"name": None}, {"other": "x"}])
def test_a_missing_or_null_param_is_named(params: dict[str, object]) -> None:
    template = text("Dear {{ name }}, {{ name }}")
    assert template.missing(params) == ("name",)
    with pytest.raises(MissingParam, match="name"):
        template.render(params)


def test_missing_params_are_named_in_the_order_of_the_template() -> None:
    assert text("{{ b }}{{ a }}{{ c }}{{ a }}").missing({"c": "1"}) == ("b", "a")


def test_an_empty_text_zero_and_false_are_given_and_not_missing() -> None:
    assert text("{{ a }}{{ b }}{{ c }}").missing({"a": "", "b": 0, "c": False}) == ()


def test_a_default_stands_for_a_missing_or_null_param_only() -> None:
    template = text('{{ name | default("friend") }}')
    assert [template.render(params) for params in ({}, {"name": None}, {"name": ""}, {"name": 0})] == [
        "friend",
        "friend",
        "",
        "0",
    ]
    assert template.missing({}) == ()
    assert template.required == frozenset()


def test_a_default_with_true_stands_for_an_empty_text_too_but_not_for_zero() -> None:
    template = text('{{ name | default("friend", true) }}')
    assert [template.render({"name": value}) for value in ("", "Jane", 0, False)] == ["friend", "Jane", "0", "false"]


def test_a_default_is_escaped_like_the_value_it_stands_for() -> None:
    assert html('{{ name | default("Tom & co") }}').render({}) == "Tom &amp; co"


def test_a_default_can_be_a_number_or_nothing() -> None:
    assert text("{{ n | default(0) }}|{{ n | default }}|{{ n | d(1.5) }}").render({}) == "0||1.5"


def test_conditions_choose_the_first_branch_that_holds() -> None:
    template = text('{% if vip %}V{% elif tier == "gold" %}G{% elif not tier %}N{% else %}E{% endif %}')
    shown = [template.render(p) for p in ({"vip": True}, {"tier": "gold"}, {}, {"tier": "tin"})]
    assert shown == ["V", "G", "N", "E"]


@pytest.mark.parametrize(
    "value", [None, "", "  ", 0, False, "0", "0.00", "-0", "0e3", "false", "FALSE", Decimal("0.0")]
)
def test_a_condition_is_false_for_nothing_zero_and_false_also_as_a_csv_spells_them(value: object) -> None:
    assert text("{% if v %}yes{% else %}no{% endif %}").render({"v": value}) == "no"


@pytest.mark.parametrize("value", ["no", "x", 1, True, "true", Decimal("0.1")])
def test_a_condition_is_true_for_anything_else(value: object) -> None:
    assert text("{% if v %}yes{% else %}no{% endif %}").render({"v": value}) == "yes"


@pytest.mark.parametrize(("value", "same"), [(1, True), ("1", True), ("2", False), (None, False), (True, False)])
def test_a_comparison_is_by_what_is_shown(value: object, same: bool) -> None:
    template = text("{% if n == 1 %}same{% endif %}{% if n != 1 %}other{% endif %}")
    assert template.render({"n": value}) == ("same" if same else "other")


def test_true_and_false_are_compared_in_any_case() -> None:
    template = text("{% if flag == true %}on{% endif %}")
    assert [template.render({"flag": value}) for value in (True, "TRUE", "true", "yes")] == ["on", "on", "on", ""]


def test_conditions_know_exactly_what_a_recipient_lacks() -> None:
    template = text("{% if vip %}{{ table }}{% else %}{{ queue }}{% endif %}{{ name }}")
    assert template.has_conditions
    assert template.required == {"name"}
    assert template.names == {"vip", "table", "queue", "name"}
    assert template.missing({"vip": True, "name": "x"}) == ("table",)
    assert template.missing({"name": "x"}) == ("queue",)
    assert template.missing({"queue": "1"}) == ("name",)


def test_a_param_needed_in_every_branch_is_required() -> None:
    assert text("{% if a %}{{ x }}{% else %}{{ x }}{{ y }}{% endif %}").required == {"x"}
    assert text("{% if a %}{{ x }}{% endif %}").required == frozenset()


def test_names_are_matched_without_regard_to_spelling() -> None:
    template = text("{{ First_Name }} {{ FIRST_NAME }}")
    assert template.required == {"first_name"}
    assert template.render({"first_name": "Jane"}) == "Jane Jane"


@pytest.mark.parametrize("source", ["a\r\nb", "a\rb\n", "\n\n", "a\n", "  {{ x }} \r\n\t{{ x }}\r", "\r\n{{ x }}\n"])
def test_white_space_and_line_ends_are_kept_as_written(source: str) -> None:
    assert text(source).render({"x": "v"}) == source.replace("{{ x }}", "v")


def test_the_dash_of_a_tag_takes_white_space_away_as_authors_of_templates_expect() -> None:
    assert text("a \r\n{%- if x -%}\r\n b{% endif %}").render({"x": 1}) == "ab"


def test_comments_are_not_sent() -> None:
    assert text("a{# to do {{ x }} #}b").render({}) == "ab"


def test_a_value_is_never_read_as_a_template() -> None:
    hostile = "{{ other }}{% if x %}{# c #}"
    assert text("{{ name }}{{ other }}").render({"name": hostile, "other": "{{ name }}"}) == hostile + "{{ name }}"


def test_stray_closing_braces_are_ordinary_text_as_css_has_them() -> None:
    source = "<style>@media print{p{color:red}}</style>{{ x }}"
    assert html(source).render({"x": "v"}).endswith("red}}</style>v")


def test_a_param_that_no_template_mentions_changes_nothing() -> None:
    assert text("hi").render({"extra": "x"}) == "hi"


_TRICKY = st.text(alphabet="ab;<>&\"'{}%# \t\r\n\0é😀\u2028", max_size=12)


@given(_TRICKY, _TRICKY)
@settings(max_examples=60, deadline=None)
def test_any_text_comes_out_as_it_went_in(first: str, second: str) -> None:
    params = {"a": first, "b": second}
    assert text("<{{ a }}|{{ b }}>").render(params) == f"<{first}|{second}>"
    rendered = html('<a b="{{ a }}">{{ b }}').render(params)
    inner = rendered.removeprefix('<a b="')
    assert not set(inner.replace('">', "", 1)) & set("<>\"'")
    if "&" not in first + second:
        assert unescape(rendered) == f'<a b="{first}">{second}'

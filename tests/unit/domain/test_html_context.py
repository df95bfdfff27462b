"""Where a value may stand in HTML."""

import time

import pytest

from shared.domain.merge import TemplateError, compile_template


@pytest.mark.parametrize(
    "source",
    [
        "<p>{{ x }}</p>",
        '<a href="{{ x }}">{{ x }}</a>',
        "<a href='https://example.com/{{ x }}?y={{ x }}'>",
        '<a href = "{{ x }}" class=plain>',
        "<img alt='{{ x }}'/>",
        '<!-- x --><!--[if mso]><v:rect href="{{ x }}">{{ x }}<![endif]-->{{ x }}',
        '<!--[if !mso]><!--><a href="{{ x }}">{{ x }}</a><!--<![endif]-->',
        "<style>p { color: red }</style><p>{{ x }}",
        "<SCRIPT>var a = '<p>';</SCRIPT >{{ x }}",
        "1 < 2 {{ x }} 3 > 2",
        '<p title="a > b">{{ x }}',
        "<title>{{ x }}</title>",
        '<td style="width: 3px">{{ x }}',
        '<p title="{% if x %}a{% else %}{{ x }}{% endif %}">',
        "<!DOCTYPE html><p>{{ x }}",
        "{{ x }}",
    ],
)
def test_a_value_may_stand_in_text_quoted_attributes_and_what_is_for_outlook(source: str) -> None:
    assert compile_template(source, kind="html").names == {"x"}


@pytest.mark.parametrize(
    ("source", "remedy"),
    [
        ("<script>var a = '{{ x }}';</script>", "script"),
        ("<script>\n{% if x %}{{ x }}{% endif %}</script>", "script"),
        ("<STYLE type='a'>p { color: {{ x }} }</style>", "style"),
        ("<script>a</scripty>{{ x }}</script>", "script"),
        ("<a href={{ x }}>", "quotes"),
        ("<a href=/a/{{ x }}>", "quotes"),
        ("<a href= {{ x }}>", "quotes"),
        ("<a {{ x }}>", "attribute's name"),
        ("<a data-{{ x }}='1'>", "attribute's name"),
        ('<a title="a"{{ x }}>', "attribute's name"),
        ("<{{ x }}>", "&lt;"),
        ("</{{ x }}>", "&lt;"),
        ("<h{{ x }}>", "&lt;"),
        ("<a onclick=\"f('{{ x }}')\">", "event handler"),
        ("<a OnClick='{{ x }}'>", "event handler"),
        ('<td STYLE="width: {{ x }}px">', "STYLE holds styles"),
        ('<img srcset="{{ x }} 2x">', "srcset holds URLs"),
        ('<iframe srcdoc="{{ x }}">', "srcdoc holds a document"),
        ("<!-- {{ x }} -->", "comment"),
        ("<!-- {{ x }}", "comment"),
        ("<!--[if {{ x }}]> a <![endif]-->", "comment"),
        ("<!--[if mso]><a href={{ x }}><![endif]-->", "quotes"),
        ("<!--[if mso]><style>p { color: {{ x }} }</style><![endif]-->", "style"),
        ("<!--[if mso]><a title='--><a href={{ x }}>", "quotes"),
    ],
)
def test_a_value_may_not_stand_where_escaping_does_not_help(source: str, remedy: str) -> None:
    with pytest.raises(TemplateError, match=remedy):
        compile_template(source, kind="html")
    compile_template(source, kind="text")


def test_a_link_that_only_outlook_shows_is_checked_like_any_other() -> None:
    template = compile_template('<!--[if mso]><v:rect href="{{ x }}"><![endif]-->', kind="html")
    assert template.render({"x": "javascript:alert(1)"}) == '<!--[if mso]><v:rect href="#"><![endif]-->'


def test_the_refusal_names_the_placeholder_and_its_line() -> None:
    with pytest.raises(TemplateError, match=r"line 3: \{\{ bad \}\} cannot stand here"):
        compile_template("<p>{{ good }}\n</p>{{ good }}\n<a href={{ bad }}>", kind="html")


@pytest.mark.parametrize(
    "piece",
    ["<", "<a ", "<a b='", "<!--", "<script>", "</", "<a b=", "<a" + " " * 50, "<!--[if a]>", "<!--[if a]><a b='-->"],
)
def test_scanning_takes_linear_time(piece: str) -> None:
    source = piece * (400_000 // len(piece))
    started = time.process_time()
    compile_template(source, kind="html")
    assert time.process_time() - started < 1.0  # seconds of processor; 0.1 at most where measured

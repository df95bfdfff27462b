"""Values in the URLs of an HTML template: one part of the URL each, and never a script."""

import time

import pytest

from shared.domain.merge import TemplateError, compile_template
from shared.domain.url_places import URL_ATTRIBUTES


def rendered(source: str, **params: object) -> str:
    return compile_template(source, kind="html").render(params)


@pytest.mark.parametrize(
    ("before", "value", "shown"),
    [
        ("https://example.com/?q=", 'a&b=c#d e/"+é', "a%26b%3Dc%23d%20e%2F%22%2B%C3%A9"),
        ("https://example.com/#", "a/b?c", "a%2Fb%3Fc"),
        ("/search?q=", "rock & roll", "rock%20%26%20roll"),
        ("https://example.com/", "a b/../c?d=1#e", "a%20b/../c%3Fd%3D1%23e"),
        ("https://example.com/u/", "o'neil-_.~", "o%27neil-_.~"),
        ("https://", "example.com:8080", "example.com:8080"),
        ("https://", "user@evil", "user%40evil"),
        ("mailto:", "jane+a@example.com?cc=x", "jane%2Ba@example.com%3Fcc%3Dx"),
        ("tel:", "+16045550123", "+16045550123"),
        (" java", "script:alert(1)", "script%3Aalert%281%29"),
    ],
)
def test_a_value_within_a_url_is_percent_encoded_for_its_place(before: str, value: str, shown: str) -> None:
    assert rendered(f'<a href="{before}{{{{ x }}}}">', x=value) == f'<a href="{before}{shown}">'


@pytest.mark.parametrize("attribute", sorted(URL_ATTRIBUTES))
def test_every_attribute_that_holds_a_url_is_known_in_any_case(attribute: str) -> None:
    for name in (attribute, attribute.upper()):
        assert rendered(f"<a {name} = '/?a={{{{ x }}}}'>", x="b&c") == f"<a {name} = '/?a=b%26c'>"


def test_elsewhere_a_value_is_escaped_only() -> None:
    assert (
        rendered('<a title="/?a={{ x }}" href="/">{{ x }}</a>', x="b&c")
        == '<a title="/?a=b&amp;c" href="/">b&amp;c</a>'
    )


@pytest.mark.parametrize(
    "link",
    [
        "https://example.com/?a=1",
        "HTTP://example.com",
        "mailto:a@example.com",
        "tel:+16045550123",
        "/a:b",
        "a",
        "?a:b",
        "",
    ],
)
def test_a_value_that_begins_a_url_is_kept_whole(link: str) -> None:
    template = compile_template('<a href="{{ x }}&amp;y={{ y }}">', kind="html")
    assert template.render({"x": link, "y": "&"}) == f'<a href="{link}&amp;y=%26">'
    assert template.links == {"x"}
    assert template.not_links({"x": link, "y": "javascript:1"}) == ()


@pytest.mark.parametrize(
    "link",
    [
        "javascript:alert(1)",
        " JavaScript:x",
        "java\nscript:x",
        "\x01javascript:x",
        "data:text/html,x",
        "vbscript:x",
        "c:\\x",
    ],
)
def test_a_value_that_begins_a_url_with_another_scheme_is_named_and_never_shown(link: str) -> None:
    template = compile_template('<a href="{{ x }}">', kind="html")
    assert template.not_links({"x": link}) == ("x",)
    assert template.render({"x": link}) == '<a href="#">'


def test_a_script_takes_no_value_at_all() -> None:
    with pytest.raises(TemplateError, match="a script in href"):
        compile_template("<a href=\"JavaScript:f('{{ x }}')\">", kind="html")


def test_each_branch_of_an_if_has_its_own_beginning() -> None:
    source = '<a href="{% if a %}https://example.com/{{ x }}{% else %}{{ x }}{% endif %}?z={{ x }}">'
    assert rendered(source, a=True, x="b/c&") == '<a href="https://example.com/b/c%26?z=b%2Fc%26">'
    assert rendered(source, a=False, x="b/c&") == '<a href="b/c&amp;?z=b%2Fc%26">'
    assert rendered(source, a=False, x="javascript:1") == '<a href="#?z=javascript%3A1">'


def test_a_fallback_is_treated_as_the_value_it_stands_for() -> None:
    assert rendered('<a href="/?a={{ x | default("b&c") }}">') == '<a href="/?a=b%26c">'


def test_a_value_never_grows_more_than_said() -> None:
    for source in ("{{ x }}", '<a href="/?{{ x }}">{{ x }}'):
        template = compile_template(source, kind="html")
        for character in ('"', "\u00e9", "\u20ac", "\U0001f600"):
            slots = source.count("{{")
            fixed = len(template.render({"x": ""}))
            assert len(template.render({"x": character * 10})) - fixed <= template.growth * 10 * slots


def test_many_placeholders_in_one_url_take_linear_time() -> None:
    source = '<a href="' + ("x" * 400 + "{{ x }}") * 4_000 + '">'
    started = time.process_time()
    compile_template(source, kind="html")
    assert time.process_time() - started < 1.0  # seconds of processor

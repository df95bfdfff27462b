import io
import json
from collections.abc import Iterator
from typing import Any

import pytest

from admin.api.json_stream import JsonError
from admin.api.outline import read_outline
from admin.app import create_app
from admin.extensions import services
from tests.integration.api.conftest import NOTHING, Api, email, faults, key_of, make_settings, release, rows_stored
from tests.support.servers import temporary_database


@pytest.fixture(scope="module")
def unchanged(postgres_url: str, migrated_template: str, redis_server_url: str) -> Iterator[Api]:
    """One application and database for all these tests: none of them may leave anything behind."""
    with temporary_database(postgres_url, template=migrated_template) as database_url:
        app = create_app(make_settings(database_url, redis_server_url))
        with app.app_context():
            ledger = services().ledger
        tenant_id, key_id, secret = key_of(ledger, "acme", default_region="CA", email_from="Acme <news@example.com>")
        yield Api(app.test_client(), secret, tenant_id, key_id)
        assert rows_stored(ledger) == NOTHING
        release(app)


@pytest.fixture
def api(unchanged: Api) -> Iterator[Api]:
    yield unchanged
    with unchanged.client.application.app_context():
        assert rows_stored(services().ledger) == NOTHING


def row(**fields: object) -> dict[str, object]:
    return {"to": "jane@example.com", "params": {"name": "Jane"}, **fields}


def test_every_fault_is_reported_at_once_with_its_place(api: Api) -> None:
    body = {
        "nmae": "x",
        "urgent": 1,
        "params": {"a": []},
        "email": {
            "from": "Acme\r\nBcc: mole@example.net <a@example.com>",
            "subject": "{{ oops",
            "text": "{{ config.secret }}",
            "recipients": [row(), {"to": "nobody@", "params": {"n": {}}}, {"to": 5}, row(too=1), None],
        },
        "sms": {"text": "{{ code }}", "recipients": [{"to": "12"}, {"to": "+16045550123"}]},
    }
    found = faults(api.submit(body))
    assert set(found) == {
        "/nmae",
        "/urgent",
        "/params/a",
        "/email/from",
        "/email/subject",
        "/email/text",
        "/email/recipients/1/to",
        "/email/recipients/1/params/n",
        "/email/recipients/2/to",
        "/email/recipients/3/too",
        "/email/recipients/4",
        "/sms/recipients/0/to",
        "/sms/recipients/0/params",
        "/sms/recipients/1/params",
    }
    assert found["/sms/recipients/1/params"] == "lacks code, which the template needs"


def test_faults_beyond_the_limit_are_counted(api: Api) -> None:
    problem = api.submit(email(*({"to": "nobody@", "params": {"name": "x"}} for _ in range(2_500)))).get_json()
    assert len(problem["errors"]) == 20
    assert problem["error_count"] == 2_500
    assert "2,500 faults" in problem["detail"]


def test_one_bad_row_at_the_end_stores_nothing(api: Api) -> None:
    rows = [row(to=f"r{number}@example.com") for number in range(2_500)]
    assert list(faults(api.submit(email(*rows, row(to="nobody@"))))) == ["/email/recipients/2500/to"]


@pytest.mark.parametrize(
    ("body", "place"),
    [
        (email(name="a\0b"), "/name"),
        (email(name="a\ud83d"), "/name"),
        (email(params={"a": "\0"}), "/params/a"),
        (email(params={"a\0": "b"}), "/params/a\0"),
        (email(row(params={"name": "Jane\0Doe"})), "/email/recipients/0/params/name"),
        (email(row(params={"name": "\ud83d"})), "/email/recipients/0/params/name"),
        (email(row(params={"name": "x", "k\ude00": "v"})), "/email/recipients/0/params/k\ude00"),
        (email(row(params={"name": "x", "k\0": "v"})), "/email/recipients/0/params/k\0"),
        (email(row(reference="a\0")), "/email/recipients/0/reference"),
        (email(row(to="jane\0@example.com")), "/email/recipients/0/to"),
        (email(row(**{"x\0": 1})), "/email/recipients/0/x\0"),
        ({"email": {**email()["email"], "subject": "a\0"}}, "/email/subject"),  # type: ignore[dict-item]
        ({"email": {**email()["email"], "reply_to": "a\0@example.com"}}, "/email/reply_to"),  # type: ignore[dict-item]
        ({"email": {**email()["email"], "html": "\ud83d"}}, "/email/html"),  # type: ignore[dict-item]
    ],
)
def test_what_postgres_cannot_hold_is_named_wherever_it_is(api: Api, body: object, place: str) -> None:
    assert place in faults(api.submit(body))


@pytest.mark.parametrize(
    ("body", "place", "says"),
    [
        ({}, "", "neither email nor sms"),
        ({"email": None}, "", "neither email nor sms"),
        ([], "", "must be an object"),
        ("x", "", "must be an object"),
        ({"email": {"subject": "s", "text": "t", "recipients": []}}, "/email/recipients", "is empty"),
        ({"email": {"subject": "s", "text": "t"}}, "/email/recipients", "is required"),
        ({"email": {"subject": "s", "text": "t", "recipients": {}}}, "/email/recipients", "must be a list"),
        ({"email": {"text": "t", "recipients": [row()]}}, "/email/subject", "is required"),
        ({"email": {"subject": "", "text": "t", "recipients": [row()]}}, "/email/subject", "is empty"),
        ({"email": {"subject": "s", "recipients": [row()]}}, "/email", "neither text nor html"),
        ({"email": {"subject": "a\nb", "text": "t", "recipients": [row()]}}, "/email/subject", "control character"),
        ({"sms": {"text": "", "recipients": [{"to": "+16045550123"}]}}, "/sms/text", "is empty"),
        ({"sms": {"from": "!", "text": "t", "recipients": [{"to": "+16045550123"}]}}, "/sms/from", "sender id"),
        (
            {"sms": {"text": "{{ t }}", "recipients": [{"to": "+16045550123", "params": {"t": ""}}]}},
            "/sms/recipients/0",
            "empty",
        ),
        (email(row(params={"name": "x" * 65_537})), "/email/recipients/0/params/name", "longer than 65,536"),
        (email(row(params={"name": "Hi\r\nBcc: mole@example.net"})), "/email/recipients/0/params", "line end"),
        (email(row(params={"name": "=?utf-8?q?=0D=0A?="})), "/email/recipients/0/params", "encoded word"),
        (email(row(params={"name": None})), "/email/recipients/0/params", "lacks name"),
        (
            email(row(params={"First Name": "a", "first_name": "b", "name": "c"})),
            "/email/recipients/0/params/first_name",
            "same name",
        ),
        (email(row(params=[])), "/email/recipients/0/params", "must be an object"),
        (email(row(reference="x" * 256)), "/email/recipients/0/reference", "longer than 255"),
        (email(row(reference=7)), "/email/recipients/0/reference", "must be text"),
        (email(params={f"p{number}": 1 for number in range(1_001)}), "/params", "1,001 params; at most 1,000"),
        ({"email": {**email()["email"], "text": "x" * 10_001}}, "/email/text", "larger than 10,000 bytes"),  # type: ignore[dict-item]
    ],
)
def test_bad_content_is_refused_at_its_place_with_a_reason(api: Api, body: object, place: str, says: str) -> None:
    found = faults(api.submit(body))
    assert says in found[place]


def test_a_param_that_would_begin_a_link_with_a_script_is_named_with_its_row(api: Api) -> None:
    links = ["https://example.com/a?b=c", "javascript:alert(1)", "/relative"]
    body = {
        "email": {
            "subject": "s",
            "html": '<a href="{{ link }}">here</a>',
            "recipients": [row(to=f"p{n}@example.com", params={"link": link}) for n, link in enumerate(links)],
        }
    }
    assert faults(api.submit(body)) == {
        "/email/recipients/1/params": "let link begin a link that is not http, https, mailto, tel or relative"
    }


def test_65_536_params_of_one_recipient_meet_a_stated_limit(api: Api) -> None:
    params = {f"p{number}": "v" for number in range(65_537)}
    found = faults(api.submit(email(row(params=params))))
    assert found == {"/email/recipients/0/params": "has 65,537 params; at most 1,000 are taken"}


def test_params_too_long_together_meet_a_stated_limit(api: Api) -> None:
    params = {"name": "x", **{f"p{number}": "v" * 60_000 for number in range(5)}}
    found = faults(api.submit(email(row(params=params))))
    assert "at most 262,144" in found["/email/recipients/0/params"]


def test_a_small_template_cannot_be_blown_up_by_a_long_value(api: Api) -> None:
    body = {
        "email": {"subject": "s", "html": "{{ a }}" * 1_000, "recipients": [row(params={"a": "<" * 1_000})]},
    }
    assert "would make a html of up to" in faults(api.submit(body))["/email/recipients/0/params"]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "line 1, column 1"),
        (b'{"email": }', "line 1, column 11"),
        (b'{"a": 1,\n "b": tru}', "line 2"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b'{"name": "\xff"}', "not UTF-8"),
        (b'{"a": ' + b"[" * 100_000, "nested too deeply"),
        (b'{"email": {"recipients": [{"to": "a@example.com"}, {"to": }]}}', "line 1, column 59"),
        (b'{"a": ' + b"9" * 5_000 + b"}", "too many digits"),
        (b'{"name": "x"} {}', "after the document"),
    ],
)
def test_what_is_not_json_is_400_with_the_place(api: Api, data: bytes, says: str) -> None:
    response = api.submit(data)
    assert response.status_code == 400
    assert says in response.get_json()["detail"]


def test_a_repeated_key_is_a_fault_and_nobody_guesses(api: Api) -> None:
    recipients = '[{"to": "a@example.com", "to": "b@example.com"}, {"to": "c@example.com", "params": {"n": 1, "n": 2}}]'
    email_object = f'{{"subject": "s", "text": "t", "text": "u", "recipients": {recipients}}}'
    found = faults(api.submit(f'{{"name": "a", "name": "b", "email": {email_object}}}'.encode()))
    assert set(found) == {"/name", "/email/text", "/email/recipients/0/to", "/email/recipients/1/params/n"}


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-16", ""],
)
def test_another_content_type_is_415(api: Api, content_type: str) -> None:
    response = api.call("POST", "/sends", data=json.dumps(email()), content_type=content_type)
    assert (response.status_code, response.mimetype) == (415, "application/problem+json")


def test_a_compressed_body_is_415(api: Api) -> None:
    assert api.submit(email(), Content_Encoding="gzip").status_code == 415


def test_a_body_too_large_is_413_before_it_is_read(api: Api) -> None:
    response = api.submit(b" " * (2 * 1024 * 1024 + 1))
    assert response.status_code == 413
    assert "2,097,152 bytes" in response.get_json()["detail"]


def test_more_recipients_than_allowed_are_refused_and_counted(api: Api) -> None:
    found = faults(api.submit(email(*(row(to=f"r{number}@example.com") for number in range(3_001)))))
    assert found[""] == "has 3,001 recipients; at most 3,000 are taken in one submission"


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ config }}{{ self }}{% include 'x' %}",
        "{% for i in range(10**9) %}x{% endfor %}",
        "{{ name | attr('x') }}",
        "{{ name",
        "{% if name %}",
        "{% raw %}{{ name }}{% endraw %}",
    ],
)
def test_a_template_is_no_way_out(api: Api, template: str) -> None:
    body: dict[str, Any] = {"email": {"subject": "s", "text": template, "recipients": [row()]}}
    found = faults(api.submit(body))
    assert any(place in ("/email/text", "/email/recipients/0/params") for place in found)


@pytest.mark.parametrize(
    "address",
    [
        "jane@example.com.",
        "jane.@example.com",
        ".jane@example.com",
        "ja..ne@example.com",
        "jane@example",
        "jane@-example.com",
        "j" * 65 + "@example.com",
        "jane@" + "a" * 63 + "." + "b" * 63 + "." + "c" * 63 + "." + "d" * 63 + ".com",
        "Jane <jane@example.com>",
        "a@example.com,b@example.com",
        "jane@[192.0.2.1]",
        '"john doe"@example.com',
        "",
        " ",
    ],
)
def test_an_address_that_would_bounce_is_refused(api: Api, address: str) -> None:
    assert list(faults(api.submit(email(row(to=address))))) == ["/email/recipients/0/to"]


def test_hundreds_of_thousands_of_unknown_fields_are_one_fault(api: Api) -> None:
    many = {f"f{number}": 1 for number in range(100_000)}
    assert list(faults(api.submit(many))) == [""]
    assert "/email" in faults(api.submit({"email": many}))
    found = faults(api.submit(email(row(**many))))
    assert found == {"/email/recipients/0": "has 100,002 fields; known here: to, params, reference"}


def test_a_header_too_large_for_memory_is_refused_while_it_is_read(api: Api) -> None:
    with api.client.application.app_context():
        limit = services().settings.api_max_body_bytes
    body = b'{"email": {"recipients": [], ' + b", ".join(b'"k%d": "%s"' % (n, b"x" * 1000) for n in range(1_500))
    assert len(body) < limit
    with pytest.raises(JsonError, match="all but the recipients is longer than 1,000,000 characters"):
        read_outline(io.BytesIO(body + b"}}"), fingerprint=False, max_header_chars=1_000_000)


def test_every_fault_of_a_recipient_is_reported_at_once(api: Api) -> None:
    body = email(
        {"to": "x"},
        {"to": "y", "params": {"name": [1]}},
        {"to": 5, "params": {}},
        {"to": "jane@example.com", "reference": 7, "extra": 1},
        {"to": "z", "params": 3},
    )
    found = api.submit(body).get_json()["errors"]
    places = sorted(fault["pointer"].removeprefix("/email/recipients/") for fault in found)
    assert places[:6] == ["0/params", "0/to", "1/params/name", "1/to", "2/params", "2/to"]
    assert places[6:] == ["3/extra", "3/params", "3/reference", "4/params", "4/to"]


def test_an_sms_too_long_for_a_number_that_is_wrong_is_told_as_both(api: Api) -> None:
    body = {"sms": {"text": "{{ t }}", "recipients": [{"to": "x", "params": {"t": "long " * 1000}}]}}
    assert faults(api.submit(body)).keys() == {"/sms/recipients/0/to", "/sms/recipients/0"}

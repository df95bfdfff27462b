"""The document against the routes that exist and the answers that are given."""

import re
from typing import Any

import pytest
from flask import Flask

from admin.api.openapi import document
from admin.api.operations import OPERATIONS
from shared.domain.merge import compile_template
from tests.integration.api.conftest import Api, email

DOCUMENT: dict[str, Any] = document()
#: Served for people and machines to read the document itself.
ABOUT_ITSELF = {"/api/v1/openapi.json", "/api/v1/docs"}


def test_every_route_of_the_api_is_in_the_document_and_the_other_way_round(app: Flask) -> None:
    routes = {
        (re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule), method.lower())
        for rule in app.url_map.iter_rules()
        if rule.rule.startswith("/api/") and rule.rule not in ABOUT_ITSELF
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    }
    documented = {(path, method) for path, methods in DOCUMENT["paths"].items() for method in methods}
    assert documented == routes


def test_the_document_is_served_without_a_key(app: Flask) -> None:
    response = app.test_client().get("/api/v1/openapi.json")
    assert response.get_json() == DOCUMENT
    assert DOCUMENT["openapi"] == "3.1.0"


def test_the_page_shows_every_operation_and_loads_nothing_from_elsewhere(app: Flask) -> None:
    page = app.test_client().get("/api/v1/docs").get_data(as_text=True)
    for operation in OPERATIONS:
        assert f'id="{operation.name}"' in page
    assert "<script" not in page
    assert "https://" not in page


def test_what_merge_does_is_in_the_document_and_on_the_page(app: Flask) -> None:
    page = app.test_client().get("/api/v1/docs").get_data(as_text=True)
    for heading in ("Values are never expanded", "Missing", "Names", "Escaping"):
        assert f"**{heading}.**" in DOCUMENT["info"]["description"]
        assert f"<td>{heading}</td>" in page


def test_merge_is_as_the_document_says(api: Api) -> None:
    def answer(text: str, **params: object) -> int | str:
        recipient = {"to": "jane@example.com", "params": params}
        body = {"params": {"shared": "s"}, "email": {"subject": "x", "text": text, "recipients": [recipient]}}
        response = api.submit(body)
        return response.get_json()["errors"][0]["detail"] if response.status_code == 422 else response.status_code

    lacks = "lacks {}, which the template needs"
    assert answer("{{ First_Name }}", **{"first-name": "{{ code }}"}) == 202
    assert answer("{{ code }}", code=None) == lacks.format("code")
    assert answer("{{ shared }}") == 202
    assert answer("{{ shared }}", shared=None) == lacks.format("shared")
    assert answer("{% if code %}x{% endif %}{{ empty }}{{ zero }}{{ no }}", empty="", zero=0, no=False) == 202
    assert compile_template("{{ a }}", kind="text").render({"a": "{{ b }}"}) == "{{ b }}"
    linked = compile_template('<a href="https://example.com/?q={{ a }}">{{ a }}</a>', kind="html")
    assert linked.render({"a": "<{{"}) == '<a href="https://example.com/?q=%3C%7B%7B">&lt;{{</a>'


def test_every_reference_leads_somewhere() -> None:
    def walk(value: Any) -> None:
        if isinstance(value, dict):
            if "$ref" in value:
                assert value["$ref"].rpartition("/")[2] in DOCUMENT["components"]["schemas"]
            for inner in value.values():
                walk(inner)
        elif isinstance(value, list):
            for inner in value:
                walk(inner)

    walk(DOCUMENT)


def check(value: Any, schema: dict[str, Any], at: str = "") -> None:
    """Check a value against the part of JSON Schema that the document uses."""
    if "$ref" in schema:
        return check(value, DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]], at)
    if "anyOf" in schema:
        problems = []
        for choice in schema["anyOf"]:
            try:
                return check(value, choice, at)
            except AssertionError as error:
                problems.append(str(error))
        raise AssertionError(f"{at}: {problems}")
    if "enum" in schema:
        assert value in schema["enum"], at
    kinds = {"string": str, "integer": int, "boolean": bool, "array": list, "object": dict, "null": type(None)}
    assert isinstance(value, kinds[schema["type"]]), f"{at} is {type(value).__name__}, not {schema['type']}"
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        assert set(schema.get("required", [])) <= set(value), f"{at} lacks a required field"
        for name, inner in value.items():
            declared = properties.get(name, schema.get("additionalProperties"))
            assert declared, f"{at}/{name} is not in the document"
            check(inner, declared, f"{at}/{name}")
    if isinstance(value, list):
        for index, inner in enumerate(value):
            check(inner, schema["items"], f"{at}/{index}")
    return None


def calls_about_events(api: Api) -> list[tuple[str, str, Any]]:
    event = {"dedup_key": "k", "kind": "x", "subject": "s"}
    finding = {"key": "k", "kind": "x", "subject": "s"}
    return [
        ("POST", "/events", api.post("/events", event)),
        ("POST", "/events", api.post("/events", {})),
        ("POST", "/events/bulk", api.post("/events/bulk", {"events": [event]})),
        ("PUT", "/findings", api.call("PUT", "/findings", json={"findings": [finding]})),
        ("PUT", "/findings/{key}", api.call("PUT", "/findings/a/b", json={"kind": "x", "subject": "s"})),
        ("PUT", "/sources/{source}/findings", api.call("PUT", "/sources/me/findings", json={"findings": [finding]})),
        ("GET", "/findings", api.get("/findings?limit=1")),
        ("GET", "/findings/{key}", api.get("/findings/a/b")),
        ("DELETE", "/findings/{key}", api.call("DELETE", "/findings/a/b")),
        ("DELETE", "/findings/{key}", api.call("DELETE", "/findings/a/b")),
    ]


def test_real_answers_have_the_documented_shape_and_status(api: Api) -> None:
    rows = [{"to": "a@example.com", "params": {"name": "A"}}, {"to": "nobody@"}]
    first = api.submit(email(*rows, on_invalid="skip", send_at="2030-01-01T00:00:00Z"))
    send = first.get_json()["id"]
    calls = [
        ("POST", "/sends", first),
        ("POST", "/sends", api.submit({"email": 1})),
        ("POST", "/sends", api.submit(b"{")),
        ("GET", "/sends", api.get("/sends?limit=1")),
        ("GET", "/sends", api.get("/sends?limit=x")),
        ("GET", "/sends/{send_id}", api.get(f"/sends/{send}")),
        ("GET", "/sends/{send_id}", api.get("/sends/none")),
        ("PATCH", "/sends/{send_id}", api.call("PATCH", f"/sends/{send}", json={"send_at": None})),
        ("POST", "/sends/{send_id}/pause", api.post(f"/sends/{send}/pause")),
        ("POST", "/sends/{send_id}/resume", api.post(f"/sends/{send}/resume")),
        ("POST", "/sends/{send_id}/cancel", api.post(f"/sends/{send}/cancel")),
        ("POST", "/sends/{send_id}/pause", api.post(f"/sends/{send}/pause")),
        ("GET", "/sends/{send_id}/deliveries", api.get(f"/sends/{send}/deliveries")),
        ("GET", "/deliveries/{delivery_id}", api.get(f"/deliveries/{send}.2")),
        ("POST", "/receipts/twilio", api.post("/receipts/twilio")),
        ("POST", "/receipts/acs", api.post("/receipts/acs", [])),
        ("POST", "/loadtest/bind", api.post("/loadtest/bind", {"tenant": "x"})),
        *calls_about_events(api),
    ]
    for method, path, response in calls:
        documented = DOCUMENT["paths"][f"/api/v1{path}"][method.lower()]["responses"]
        assert str(response.status_code) in documented, f"{method} {path} answered {response.status_code}"
        content = documented[str(response.status_code)]["content"]
        assert response.mimetype in content
        check(response.get_json(), content[response.mimetype]["schema"], f"{method} {path}")
    assert {(method, f"/api/v1{path}") for method, path, _ in calls} == {
        (method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods
    }


@pytest.mark.parametrize("name", ["SendRequest", "EmailRequest", "SmsRequest", "Recipient", "RescheduleRequest"])
def test_the_document_says_that_unknown_fields_are_refused(name: str) -> None:
    assert DOCUMENT["components"]["schemas"][name]["additionalProperties"] is False

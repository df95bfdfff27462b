"""The OpenAPI 3.1 document, made of the operations and their models, and a page for reading it."""

import functools
import json
import re
from http import HTTPStatus
from typing import Any

from flask import Response, render_template
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from admin.api import limits
from admin.api.operations import OPERATIONS, Operation, api
from admin.api.schemas import Problem

_PROBLEMS = {
    400: "The request cannot be read: not JSON (with line and column), a body cut short, a bad header.",
    401: "The API key is missing, unknown or revoked.",
    403: "The key is not bound to a tenant, or is a test key where only a live one will do.",
    404: "No such thing, or another tenant's.",
    409: "Not in this state, or not while another request runs.",
    413: "The body is too large.",
    415: "The body is not UTF-8 JSON.",
    422: "The body or query has faults; all are listed, and nothing was stored.",
    503: "The ledger is away, or busy with large submissions; repeat the request after Retry-After seconds.",
}
_ABOUT = (
    "Hand in e-mail and SMS for one recipient or a million; every one of them reaches a settled outcome. "
    f"Limits: {limits.MAX_PARAMS:,} params and {limits.MAX_PARAM_CHARS:,} characters of params for each recipient; "
    "the number of recipients and the size of a body are settings of the installation (1,000,000 and 256 MiB unless "
    "changed)."
)
#: What a template may say, and what becomes of a value in it: a heading, and what is to be known about it.
_MERGE = {
    "Placeholders": "`{{ name }}` is replaced by the recipient's param of that name, else by the send's. "
    '`{{ name | default("friend") }}` names a text for a missing or null param; `default("friend", true)` also for an '
    'empty one. `{% if vip %}…{% elif tier == "gold" %}…{% else %}…{% endif %}` chooses, also with `not`, `and`, `or` '
    "and `!=`; `{# … #}` is left out. That is the whole language.",
    "Values are never expanded": "A value is put in once and is not read as a template: braces inside it are shown as "
    "they were given.",
    "Missing": "A param that is absent or null is missing (null in a recipient's params hides the send's), and a "
    "recipient who lacks one that the template needs is refused at acceptance. In a condition a missing param counts "
    "as false. An empty text, 0 and false are values, and are put in.",
    "Names": "The spelling of a param's name does not matter: `First Name`, `first-name` and `FIRST_NAME` are all "
    "`first_name`, so the headers of a spreadsheet will do. A template writes it with letters, digits and underscores, "
    "in either case. Params of one object that differ in spelling only are refused.",
    "Escaping": "In the subject, in text and in SMS a value stands as it is. In html it is escaped, and inside a URL "
    "percent-encoded; a placeholder where neither makes it safe (a script, a style, a tag's name, an attribute without "
    "quotes) is refused with the template.",
}
_REF = "#/components/schemas/{model}"


def _schemas() -> dict[str, Any]:
    requests = [operation.body for operation in OPERATIONS if operation.body]
    answers: list[type[BaseModel]] = [operation.answer for operation in OPERATIONS]
    wanted = [*((model, "validation") for model in requests), *((model, "serialization") for model in answers)]
    wanted.append((Problem, "serialization"))
    _, document = models_json_schema(list(dict.fromkeys(wanted)), ref_template=_REF)  # type: ignore[arg-type]
    definitions: dict[str, Any] = document["$defs"]
    return definitions


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"\{(\w+)\}", operation.path)
    ]
    if operation.query is not None:
        schema = operation.query.model_json_schema()
        for name, entry in schema["properties"].items():
            description = entry.pop("description", "")
            found.append({"name": name, "in": "query", "description": description, "schema": _inline(entry, schema)})
    for name, description in operation.headers.items():
        found.append({"name": name, "in": "header", "description": description, "schema": {"type": "string"}})
    return found


def _inline(entry: Any, schema: dict[str, Any]) -> Any:
    """Put the definitions a query parameter refers to in their places."""
    if isinstance(entry, dict):
        if "$ref" in entry:
            return _inline(schema["$defs"][entry["$ref"].rpartition("/")[2]], schema)
        return {key: _inline(value, schema) for key, value in entry.items() if key != "title"}
    if isinstance(entry, list):
        return [_inline(value, schema) for value in entry]
    return entry


def _content(model: type[BaseModel], kind: str = "application/json") -> dict[str, Any]:
    return {kind: {"schema": {"$ref": _REF.format(model=model.__name__)}}}


def _entry(operation: Operation) -> dict[str, Any]:
    responses: dict[str, Any] = {
        str(operation.status): {
            "description": HTTPStatus(operation.status).phrase,
            "content": _content(operation.answer),
        }
    }
    for status in (*operation.problems, 500):
        responses[str(status)] = {
            "description": _PROBLEMS.get(status, "A fault of ours."),
            "content": _content(Problem, "application/problem+json"),
        }
    entry: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "description": operation.description,
        "parameters": _parameters(operation),
        "responses": responses,
    }
    if operation.body is not None:
        entry["requestBody"] = {"required": True, "content": _content(operation.body)}
    return entry


@functools.cache
def document() -> dict[str, Any]:
    """The whole document; built once per process, after every operation has been registered."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(f"/api/v1{operation.path}", {})[operation.method.lower()] = _entry(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tidings",
            "version": "1",
            "description": f"{_ABOUT}\n\n" + "\n\n".join(f"**{heading}.** {text}" for heading, text in _MERGE.items()),
        },
        "servers": [{"url": "/"}],
        "security": [{"key": []}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": _schemas(),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "bearerFormat": "tid_…"}},
        },
    }


@api.get("/openapi.json")
def openapi_document() -> Response:
    """The document; needs no key."""
    return Response(json.dumps(document()), mimetype="application/json")


@api.get("/docs")
def docs() -> str:
    """The document, readable, without a script or anything from elsewhere."""
    return render_template("api_docs.html", document=document(), about=_ABOUT, merge=_MERGE, problems=_PROBLEMS)

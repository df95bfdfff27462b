"""
The operations of API v1: one decorator makes the route and its entry in the OpenAPI document.

A view returns a model; the decorator writes it down, so an answer cannot have another shape than its document.
"""

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flask import Blueprint, Response, request
from pydantic import BaseModel

from admin.api.faults import shape_faults, unstorable
from admin.errors import ProblemError

api = Blueprint("api", __name__, url_prefix="/api/v1")


@dataclass(frozen=True)
class Operation:
    """What the OpenAPI document says of one route."""

    method: str
    path: str
    name: str
    summary: str
    description: str
    status: int
    answer: type[BaseModel]
    body: type[BaseModel] | None
    query: type[BaseModel] | None
    problems: tuple[int, ...]
    headers: Mapping[str, str] = field(default_factory=dict)


OPERATIONS: list[Operation] = []

View = Callable[..., BaseModel | tuple[BaseModel, Mapping[str, str]]]


def operation(
    method: str,
    path: str,
    *,
    summary: str,
    answer: type[BaseModel],
    status: int = 200,
    body: type[BaseModel] | None = None,
    query: type[BaseModel] | None = None,
    problems: tuple[int, ...] = (),
    headers: Mapping[str, str] | None = None,
    whole: str | None = None,
) -> Callable[[View], View]:
    """
    Register a view under an OpenAPI path such as `/sends/{id}`; its docstring is the description.

    The view returns a model of the class `answer`, or such a model and headers. `query` names the model of the
    query string, which the view is given as `query=`; `headers` documents request headers the view reads.
    `whole` names the part of the path that may hold slashes.
    """

    def register(view: View) -> View:
        @functools.wraps(view)
        def respond(**arguments: Any) -> Response:
            if query is not None:
                arguments["query"] = read_query(query)
            result = view(**arguments)
            model, extra = result if isinstance(result, tuple) else (result, {})
            if type(model) is not answer:
                raise TypeError(f"{view.__name__} answered {type(model).__name__}, not {answer.__name__}")
            return Response(model.model_dump_json(), status=status, headers=dict(extra), mimetype="application/json")

        OPERATIONS.append(
            Operation(
                method=method,
                path=path,
                name=view.__name__,
                summary=summary,
                description=" ".join((view.__doc__ or "").split()),
                status=status,
                answer=answer,
                body=body,
                query=query,
                problems=problems,
                headers=headers or {},
            )
        )
        rule = re.sub(r"\{(\w+)\}", r"<\1>", path).replace(f"<{whole}>", f"<path:{whole}>")
        api.add_url_rule(rule, view.__name__, respond, methods=[method])
        return view

    return register


def read_query(model: type[BaseModel]) -> BaseModel:
    """
    The query string as a model.

    Raises: ProblemError 422 for an unknown, repeated or wrong parameter.
    """
    repeated = [name for name, values in request.args.lists() if len(values) > 1]
    if repeated:
        raise ProblemError(422, "invalid-query", f"The parameter {repeated[0]} is given more than once.")
    values = request.args.to_dict()
    faults = list(unstorable(values)) or shape_faults(model, values)
    if faults:
        said = "; ".join(f"{fault.pointer.lstrip('/')}: {fault.detail}" for fault in faults)
        raise ProblemError(422, "invalid-query", f"The query string has faults: {said}.")
    return model.model_validate(values)

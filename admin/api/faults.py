"""Collecting what is wrong with a body, all of it at once, each fault at its JSON pointer."""

import difflib
import functools
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from admin.api.limits import MAX_DEPTH, MAX_FIELDS
from admin.errors import Fault
from shared.domain.text_checks import check_storable


class Faults:
    """At most `limit` faults are kept, the others counted: an answer has a bounded size."""

    def __init__(self, limit: int) -> None:
        self.kept: list[Fault] = []
        self.count = 0
        self._limit = limit

    def add(self, pointer: str, detail: str) -> None:
        """Note one fault."""
        self.count += 1
        if len(self.kept) < self._limit:
            self.kept.append(Fault(pointer, detail))

    def at(self, pointer: str) -> bool:
        """Whether a fault at this place is known."""
        return any(fault.pointer == pointer for fault in self.kept)

    @property
    def full(self) -> bool:
        """Whether further faults are only counted."""
        return len(self.kept) >= self._limit

    @property
    def more(self) -> int:
        """Faults counted but not kept."""
        return self.count - len(self.kept)


def pointer_to(*parts: str | int) -> str:
    """A JSON pointer. Source: RFC 6901 §3."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def unstorable(value: Any, at: str = "", *, depth: int = 0) -> Iterator[Fault]:
    """Every key and text under a value that Postgres could not hold, what is nested too deeply or repeats a key."""
    if isinstance(value, str):
        if (problem := check_storable(value)) is not None:
            yield Fault(at, problem)
    elif depth >= MAX_DEPTH and isinstance(value, dict | list):
        yield Fault(at, f"is nested more than {MAX_DEPTH} levels deep; give it as text")
    elif isinstance(value, dict):
        repeated = getattr(value, "key", None)
        if repeated is not None:
            yield Fault(at + pointer_to(repeated), "occurs twice in its object")
        for key, inner in value.items():
            if (problem := check_storable(key)) is not None:
                yield Fault(at + pointer_to(key), f"the name {problem}")
            yield from unstorable(inner, at + pointer_to(key), depth=depth + 1)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from unstorable(inner, at + pointer_to(index), depth=depth + 1)


_PLAIN = {
    "missing": "is required",
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "dict_type": "must be an object",
    "list_type": "must be a list",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "string_unicode": "is not valid text",
}


def shape_faults(model: type[BaseModel], value: Any, at: str = "") -> list[Fault]:
    """What a model has against a value: wrong types, missing and unknown fields, with a suggestion."""
    if isinstance(value, dict) and len(value) > MAX_FIELDS:
        return [Fault(at, f"has {len(value):,} fields; known here: {', '.join(_fields_at(model, ()))}")]
    try:
        model.model_validate(value)
    except ValidationError as error:
        return [
            Fault(at + pointer_to(*fault["loc"]), _say(model, fault))
            for fault in error.errors(include_url=False, include_input=False)
        ]
    return []


def _say(model: type[BaseModel], fault: Mapping[str, Any]) -> str:
    kind, context = fault["type"], fault.get("ctx", {})
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind == "extra_forbidden":
        return _unknown_field(model, fault["loc"])
    if kind == "string_too_long":
        return f"is longer than {context['max_length']:,} characters"
    if kind == "too_short":
        return "is empty; give at least one"
    if kind == "literal_error":
        return f"must be {context['expected']}"
    if kind == "value_error":
        return str(context["error"])
    return str(fault["msg"][:1].lower() + fault["msg"][1:])


def _unknown_field(model: type[BaseModel], place: tuple[str | int, ...]) -> str:
    return _suggest(str(place[-1])[:100], tuple(_fields_at(model, place[:-1])))


@functools.lru_cache(maxsize=1024)
def _suggest(name: str, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    hint = f"did you mean {close[0]}?" if close else f"known here: {', '.join(known)}"
    return f"is not a field here; {hint}"


def _fields_at(model: type[BaseModel], place: tuple[str | int, ...]) -> list[str]:
    """The field names of the model that sits at a place inside another."""
    for part in place:
        if isinstance(part, int):
            continue
        for name, field in model.model_fields.items():
            if (field.alias or name) == part:
                model = next(kind for kind in _models_in(field.annotation))
    return [field.alias or name for name, field in model.model_fields.items()]


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in getattr(annotation, "__args__", ()):
        yield from _models_in(inner)

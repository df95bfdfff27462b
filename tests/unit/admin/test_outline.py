import io
import json
from typing import Any

import pytest

from admin.api.outline import Outline, read_outline
from shared.domain.states import Channel


def outline(body: Any, **dump: Any) -> Outline:
    return read_outline(io.BytesIO(json.dumps(body, **dump).encode()), fingerprint=True)


EMAIL = {"subject": "s", "recipients": [{"to": "a@example.com", "params": {"x": 1.0, "y": 2}}, {"to": "b@example.com"}]}


def test_recipients_are_counted_and_found_and_the_rest_is_kept() -> None:
    body = {"name": "é", "email": EMAIL, "sms": {"recipients": [], "text": "t"}}
    data = json.dumps(body, ensure_ascii=False).encode()
    found = read_outline(io.BytesIO(data), fingerprint=False)
    assert found.header == {
        "name": "é",
        "email": {"subject": "s", "recipients": [{"to": ""}]},
        "sms": {"text": "t", "recipients": []},
    }
    assert found.lists[Channel.EMAIL].count == 2
    assert found.lists[Channel.SMS].count == 0
    assert data[found.lists[Channel.EMAIL].offset :].startswith(b'[{"to": "a@example.com"')
    assert found.fingerprint is None


def test_key_order_and_white_space_do_not_change_the_fingerprint() -> None:
    one = outline({"name": "n", "email": EMAIL}).fingerprint
    reversed_rows = [dict(reversed(row.items())) for row in EMAIL["recipients"]]  # type: ignore[attr-defined]
    other = {"email": {"recipients": reversed_rows, "subject": "s"}, "name": "n"}
    assert outline(other, indent=3).fingerprint == one


@pytest.mark.parametrize(
    "other",
    [
        {"name": "m", "email": EMAIL},
        {"name": "n", "sms": EMAIL},
        {"name": "n", "email": {**EMAIL, "recipients": EMAIL["recipients"][:1]}},
        {"name": "n", "email": {**EMAIL, "recipients": EMAIL["recipients"][::-1]}},
        {"name": "n", "email": {**EMAIL, "recipients": "none"}},
        {"name": "n", "email": {**EMAIL, "recipients": [{"to": "\ud83d"}]}},
    ],
)
def test_whatever_else_differs_changes_the_fingerprint(other: Any) -> None:
    assert outline(other).fingerprint != outline({"name": "n", "email": EMAIL}).fingerprint


def test_a_number_and_the_same_digits_as_text_have_different_fingerprints() -> None:
    assert outline({"params": {"a": 1.5}}).fingerprint != outline({"params": {"a": "1.5"}}).fingerprint


def test_thousands_of_recipients_have_one_fingerprint_however_they_are_chunked() -> None:
    rows = [{"to": f"r{number}@example.com"} for number in range(1_234)]
    assert outline({"email": {"recipients": rows}}).fingerprint == outline({"email": {"recipients": rows}}).fingerprint
    changed = [*rows[:-1], {"to": "other@example.com"}]
    assert (
        outline({"email": {"recipients": changed}}).fingerprint != outline({"email": {"recipients": rows}}).fingerprint
    )

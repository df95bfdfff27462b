"""A scripted CHES: takes every message but those a test has another answer for, and counts per recipient."""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from uuid import uuid4

from tests.support.scripted_http import Received, ScriptedHttp, Step, answer

EMAIL = "/api/v1/email"
Answers = Mapping[str, Step | Callable[[Received], Step]]


def taken(request: Received) -> Step:
    """201 as CHES answers it."""
    to = json.loads(request.body)["to"]
    return answer(201, {"txId": str(uuid4()), "messages": [{"msgId": f"msg-{uuid4()}", "to": to}]})


def refused(status: int, detail: str = "no", **headers: str) -> Step:
    return answer(status, {"title": "Because", "detail": detail}, headers)


def refused_field(field: str) -> Step:
    return answer(422, {"title": "Validation", "detail": "no", "errors": [{"message": f"Invalid value `{field}`."}]})


def serve(
    provider: ScriptedHttp,
    answers: Answers | None = None,
    *,
    otherwise: Step | Callable[[Received], Step] = taken,
) -> None:
    """Answer by the recipient's local part, and `otherwise`."""

    def step(request: Received) -> Step:
        (to,) = json.loads(request.body)["to"]
        found = (answers or {}).get(to.partition("@")[0], otherwise)
        return found(request) if callable(found) else found

    provider.always("/token", answer(200, {"access_token": "t", "expires_in": 300, "token_type": "Bearer"}))
    provider.always(EMAIL, step)


def calls(provider: ScriptedHttp) -> Counter[str]:
    """How often each address was posted."""
    return provider.count_by(lambda request: str(json.loads(request.body)["to"][0]), EMAIL)


def tags(provider: ScriptedHttp) -> Counter[str]:
    """How often each tag was posted."""
    return provider.count_by(lambda request: str(json.loads(request.body)["tag"]), EMAIL)

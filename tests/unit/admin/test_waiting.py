"""What stands beside the bar of a send that is waited for."""

from typing import Any

import pytest

from admin.cli import waiting


@pytest.mark.parametrize(
    ("places", "left", "said"),
    [
        ({"ready": 5}, 65, "about 1 min left"),
        ({"ready": 5}, 9, "about 9 s left"),
        ({"ready": 5}, None, "sending"),
        ({"circuit": 5, "backoff": 2}, None, "circuit open"),
        ({"hold": 5}, None, "an operator holds the provider"),
        ({"cap": 5}, None, "sending"),
    ],
)
def test_a_send_that_is_held_back_says_by_what_and_tells_no_time(
    places: dict[str, int], left: int | None, said: str
) -> None:
    send: dict[str, Any] = {"status": "sending", "seconds_left": left, "books": {"email": {"owed_where": places}}}
    assert waiting._note(send) == said

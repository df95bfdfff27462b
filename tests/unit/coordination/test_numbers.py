"""Clamps and shares that need no server."""

import pytest
import redis

from shared.coordination.redis import _refusal
from shared.coordination.slots import reserved_slots, window_token
from shared.domain.states import Lane


@pytest.mark.parametrize(
    ("cap", "percent", "reserved"),
    [(5, 20, 1), (6, 20, 2), (50, 20, 10), (1, 20, 0), (2, 90, 1), (20, 0, 0), (0, 20, 0)],
)
def test_the_reserved_share_is_rounded_up_and_never_all(cap: int, percent: int, reserved: int) -> None:
    assert reserved_slots(cap, percent) == reserved


def test_a_window_token_carries_the_lane_and_is_unique() -> None:
    tokens = {window_token(Lane.BULK) for _ in range(1000)}
    assert len(tokens) == 1000
    assert all(token.startswith("bulk:") for token in tokens)
    assert window_token(Lane.SINGLE).startswith("single:")


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("MISCONF Redis is configured to save RDB snapshots", "MISCONF"),
        ("BUSY Redis is busy running a script", "BUSY"),
        ("MASTERDOWN Link with MASTER is down", "MASTERDOWN"),
        ("ERR wrong number of arguments", None),
        ("WRONGTYPE Operation against a key", None),
    ],
)
def test_a_server_that_cannot_serve_is_told_from_a_wrong_command(message: str, reason: str | None) -> None:
    assert _refusal(redis.ResponseError(message)) == reason

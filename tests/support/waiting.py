"""Wait for a condition instead of sleeping."""

import time
from collections.abc import Callable
from typing import TypeVar

#: s; between two looks: short against anything a test waits for
INTERVAL_S = 0.02

T = TypeVar("T")


def wait_until(condition: Callable[[], T], *, timeout: float = 10.0, what: str = "") -> T:
    """Give the condition's first true result; fails the test after `timeout` seconds, saying what was waited for."""
    deadline = time.monotonic() + timeout
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout} s for {what or getattr(condition, '__name__', condition)}")
        time.sleep(INTERVAL_S)

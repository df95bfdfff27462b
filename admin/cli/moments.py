"""Moments as the commands show them."""

from datetime import datetime


def when(moment: datetime | None) -> str | None:
    """A moment to the second, in UTC; None stays None."""
    return None if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} UTC"

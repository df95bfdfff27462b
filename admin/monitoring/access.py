"""
Who may open a page and who may act: each view of the pages says what it needs, and nothing else decides.

    @pages.get("/failures")
    @reads
    def failures() -> str: ...

    @pages.post("/failures/requeue")
    @acts
    def requeue() -> AnyResponse: ...

A mark goes directly above the function, below the route. A page's view without a mark is open to nobody.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import TypeVar

View = TypeVar("View", bound=Callable[..., object])

_MARK = "tidings_needs"


class Need(StrEnum):
    """What a view asks of whoever calls it."""

    NOTHING = "nothing"
    READING = "reading"
    ACTING = "acting"


def open_to_all(view: View) -> View:
    """Mark a view that whoever is not signed in must reach: the way in, and nothing that tells of deliveries."""
    return _mark(view, Need.NOTHING)


def reads(view: View) -> View:
    """Mark a view for everybody who is signed in."""
    return _mark(view, Need.READING)


def acts(view: View) -> View:
    """Mark a view for those who may change something."""
    return _mark(view, Need.ACTING)


def need_of(view: object) -> Need | None:
    """What a view is marked with; None is not marked, and served to nobody."""
    found: Need | None = getattr(view, _MARK, None)
    return found


def _mark(view: View, need: Need) -> View:
    setattr(view, _MARK, need)  # functools.wraps carries it on to what is put around the view
    return view


def operator() -> str:
    """Give the name of the person who is signed in, for the audit and the header."""
    return "local"


def may_act() -> bool:
    """Whether the person who is signed in may change something; a template disables its buttons by it."""
    return True

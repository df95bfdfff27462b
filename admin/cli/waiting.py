"""Waiting until a send is settled: a bar in a terminal, plain lines elsewhere. Leaving changes nothing for the send."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from admin.cli.api_client import ApiClient, Refusal, Unreachable
from admin.cli.books import accepted_in, is_over, settled_in
from admin.cli.screen import say
from shared.domain.progress import HELD_WORDS

#: Seconds between two looks: quick at first, so that a small send ends at once.
_FIRST_LOOK_S, _LOOK_S = 0.2, 1.0
#: Seconds between two plain lines.
_LINE_S = 10.0
#: Seconds without an answer after which waiting ends; a deploy takes less.
_PATIENCE_S = 120.0
_MIN_SERVER_ERROR = 500


class Gauge(Protocol):
    """Shows how far something is; `show` may be called as often as one likes."""

    def show(self, done: int, note: str = "") -> None:
        """Show `done` of the total, with a word beside it."""


class _Lines:
    """Says nothing of what is done within the first interval."""

    def __init__(self, title: str, total: int) -> None:
        self._title, self._total = title, total
        self._said, self._said_at = "", time.monotonic()

    def show(self, done: int, note: str = "") -> None:
        line = f"{self._title}: {done:,} of {self._total:,}" + (f", {note}" if note else "")
        is_due = time.monotonic() - self._said_at >= _LINE_S or (bool(self._said) and done >= self._total)
        if is_due and line != self._said:
            say(line, err=True)
            self._said, self._said_at = line, time.monotonic()


@contextmanager
def gauge(title: str, total: int, *, is_bytes: bool = False) -> Iterator[Gauge]:
    """A progress bar on standard error, or a line every ten seconds where that is no terminal."""
    if not sys.stderr.isatty():
        yield _Lines(title, total)
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn

    count = DownloadColumn() if is_bytes else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), count, TextColumn("{task.fields[note]}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total, note="")

        class Bar:
            def show(self, done: int, note: str = "") -> None:
                bar.update(task, completed=done, note=note)

        yield Bar()


def wait_until_settled(
    api: ApiClient,
    send_id: str,
    *,
    until_paused: bool = True,
    on_look: Callable[[dict[str, Any]], None] = lambda _: None,
) -> dict[str, Any]:
    """
    Watch a send until nothing more will happen to it by itself, and give its last state.

    A paused send ends the waiting too, unless `until_paused` is off: a person has to act. Ctrl-C comes out as
    KeyboardInterrupt.

    Raises: Unreachable when no answer comes for two minutes; Refusal.
    """
    send = api.get(f"/sends/{send_id}")
    with gauge("Sending", accepted_in(send)) as bar:
        answered_at, looks = time.monotonic(), 0
        while not is_over(send) and not (until_paused and send["status"] == "paused"):
            time.sleep(_FIRST_LOOK_S if looks * _FIRST_LOOK_S < _LOOK_S else _LOOK_S)
            looks += 1
            try:
                send = api.get(f"/sends/{send_id}")
                answered_at = time.monotonic()
            except (Unreachable, Refusal) as fault:
                is_passing = isinstance(fault, Unreachable) or fault.status >= _MIN_SERVER_ERROR
                if not is_passing or time.monotonic() - answered_at > _PATIENCE_S:
                    raise
                bar.show(settled_in(send), "no answer, asking again")
                continue
            on_look(send)
            bar.show(settled_in(send), _note(send))
        bar.show(settled_in(send), send["status"])
    return send


def _note(send: dict[str, Any]) -> str:
    left = send.get("seconds_left")
    if left is None:
        places = [books["owed_where"] for books in send["books"].values()]
        held = next((words for place, words in HELD_WORDS.items() if any(where.get(place) for where in places)), None)
        return held or str(send["status"])
    minutes, seconds = divmod(int(left), 60)
    return f"about {minutes} min left" if minutes else f"about {seconds} s left"

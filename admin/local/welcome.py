"""Wait until the web process answers, then say where everything is."""

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from admin.live_route import LiveRoute
from admin.local import demo
from shared.domain.states import Channel

#: s; then the start is reported as slow, not given up
READY_TIMEOUT_S = 60.0
#: s; between two looks, longer each time so that a slow start is not drowned in requests
FIRST_INTERVAL_S, LONGEST_INTERVAL_S = 0.2, 2.0
#: What stands for the recipient where a real provider would take the example: the API refuses it until it is replaced.
PLACEHOLDER = "YOUR-ADDRESS"
TEXT = """
  Tidings is running.

    API     {base}/api/v1
    OpenAPI {base}/api/v1/openapi.json
    Key     {key}    (tenant "{tenant}")
    Pages   {pages}
            {pages_note}
    Inbox   {base}/inbox
            (what recipients of the sandbox provider would see; the same sign-in)

{routes}

  {invitation}

  curl -sS {base}/api/v1/sends -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' -d '{body}'

  Commands in another terminal:  {commands}
  Ctrl-C ends everything; {data}.
"""

LINK_NOTE = "(signs one browser in, once, within 15 minutes; `tidings admin link` makes another)"
NO_LINK_NOTE = "(it says how to sign in)"


class Readiness:
    """
    Asks /healthz and /readyz in a thread of its own, so that the processes' output keeps flowing.

    `answer` is None while it waits, empty when both answered 200, else what was wrong at the end.
    """

    def __init__(self, base: str) -> None:
        self._base = base
        self.answer: str | None = None
        threading.Thread(target=self._wait, name="readiness", daemon=True).start()

    def _wait(self) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        interval = FIRST_INTERVAL_S
        while True:
            faults = [fault for path in ("/healthz", "/readyz") if (fault := _ask(self._base + path))]
            if not faults or time.monotonic() > deadline:
                self.answer = "; ".join(faults)
                return
            time.sleep(interval)
            interval = min(interval * 1.5, LONGEST_INTERVAL_S)


def _ask(url: str) -> str:
    """Give what is wrong with the answer of a loopback address; empty for 200."""
    try:
        with urllib.request.urlopen(url, timeout=5):  # noqa: S310 - our own http address
            return ""
    except urllib.error.HTTPError as answer:
        with answer:
            return f"{url} answers {answer.code}: {answer.read(500).decode(errors='replace')}"
    except OSError as fault:
        return f"{url}: {fault}"


@dataclass(frozen=True, kw_only=True)
class Run:
    """
    What the banner tells of a run.

    Args:
        base: where the web process is.
        link: signs a browser in to the pages; empty where links are off.
        database: host of a database that was given; empty for the embedded one.
        commands: how a command of this checkout is begun in another terminal.
    """

    base: str
    link: str
    key: str
    folder: Path
    routes: Sequence[LiveRoute]
    database: str
    commands: str


def text(run: Run) -> str:
    """Give what a newcomer needs: the addresses, the key, where messages go, one request to try."""
    email = next(route for route in run.routes if route.channel is Channel.EMAIL)
    invitation, to = "Send something:", "ada@example.com"
    if email.is_real:
        to = PLACEHOLDER
        invitation = (
            f"Send something. It is really sent, through {email.provider} at {email.host or 'no host yet'}: "
            f"put an address of your own for {to}."
        )
    data = f"the data stays in {run.folder}"
    if run.database:
        data = f"the data stays in the database at {run.database} that DATABASE_URL names"
    return TEXT.format(
        base=run.base,
        pages=run.link or f"{run.base}/admin",
        pages_note=LINK_NOTE if run.link else NO_LINK_NOTE,
        key=run.key,
        tenant=demo.TENANT,
        routes="\n".join(line for route in run.routes for line in _route_lines(route)),
        invitation=invitation,
        body=json.dumps(_example(to)),
        commands=run.commands,
        data=data,
    )


def _route_lines(route: LiveRoute) -> list[str]:
    return [f"  {route.words}."] + ([f"  WARNING: {route.warning}."] if route.warning else [])


def _example(to: str) -> dict[str, object]:
    return {
        "email": {
            "subject": "Hello {{ name }}",
            "text": "Hello {{ name }}, this is Tidings.",
            "recipients": [{"to": to, "params": {"name": "Ada"}}],
        }
    }

"""Wait until the web process answers, then say where everything is."""

import json
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

from admin.local import demo

#: s; then the start is reported as slow, not given up
READY_TIMEOUT_S = 60.0
#: s; between two looks, longer each time so that a slow start is not drowned in requests
FIRST_INTERVAL_S, LONGEST_INTERVAL_S = 0.2, 2.0
EXAMPLE = {
    "email": {
        "subject": "Hello {{ name }}",
        "text": "Hello {{ name }}, this is Tidings.",
        "recipients": [{"to": "ada@example.com", "params": {"name": "Ada"}}],
    }
}
TEXT = """
  Tidings is running.

    API     {base}/api/v1
    OpenAPI {base}/api/v1/openapi.json
    Key     {key}    (tenant "{tenant}")
    Inbox   {inbox}
            (what the sandbox provider was given; the link admits whoever has it)

  Send something:

  curl -sS {base}/api/v1/sends -H 'Authorization: Bearer {key}' -H 'Content-Type: application/json' -d '{body}'

  Commands in another terminal:  set -a; . {env_file}; set +a
  Ctrl-C ends everything; the data stays in {folder}.
"""


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


def text(*, base: str, inbox: str, key: str, folder: Path) -> str:
    """Give what a newcomer needs: the addresses, the key, one request to try; `inbox` is the link that signs in."""
    return TEXT.format(
        base=base,
        inbox=inbox,
        key=key,
        tenant=demo.TENANT,
        folder=folder,
        env_file=folder / "env",
        body=json.dumps(EXAMPLE),
    )

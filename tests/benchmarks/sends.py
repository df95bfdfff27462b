"""One send through the HTTP API, watched until it is completed."""

import http.client
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple
from urllib.parse import urlsplit
from uuid import UUID

from tests.benchmarks import usage
from tests.benchmarks.accept import TEXT
from tests.benchmarks.stage import Stage
from tests.support.factories import books
from tests.support.waiting import wait_until

#: s; a send that is not settled by then has failed the benchmark
PATIENCE_S = 600.0


class Accepted(NamedTuple):
    """A send that was answered with 202 at `at` (Unix time), `taken_s` after its first byte was sent."""

    id: UUID
    at: float
    taken_s: float


def submit(stage: Stage, body: bytes) -> Accepted:
    """Hand a submission to the API."""
    connection = http.client.HTTPConnection(urlsplit(stage.address).netloc, timeout=PATIENCE_S)
    started = time.perf_counter()
    headers = {"Authorization": f"Bearer {stage.key}", "Content-Type": "application/json"}
    connection.request("POST", "/api/v1/sends", body, headers)
    response = connection.getresponse()
    answer = response.read()
    at, taken = time.time(), time.perf_counter() - started
    connection.close()
    if response.status != 202:
        raise RuntimeError(f"the submission was answered {response.status}: {answer[:500]!r}")
    return Accepted(UUID(json.loads(answer)["id"]), at, taken)


def single(number: int) -> bytes:
    """The body of an e-mail to one person."""
    recipient = {"to": f"one{number}@example.com", "params": {"name": f"Person {number}", "code": f"S-{number:08}"}}
    return json.dumps({"email": {"subject": "For {{ name }}", "text": TEXT, "recipients": [recipient]}}).encode()


def status(stage: Stage, send_id: UUID) -> str:
    """Where the send is."""
    with stage.ledger.autocommit() as connection:
        row = connection.execute("SELECT status FROM send WHERE id = %s", [send_id]).fetchone()
    return "" if row is None else str(row[0])


def run_send(stage: Stage, body: bytes, *, count: int) -> dict[str, object]:
    """
    Send to `count` recipients and measure.

    `per_s` counts from the 202 to the commit that completed the send, `per_s_span` from the first claim to the
    last outcome.

    Raises: AssertionError where the books or the provider's count are not exactly `count`.
    """
    stage.sink.reset()
    roots = stage.roots()
    before = usage.cpu_of(roots)
    accepted = submit(stage, body)
    wait_until(lambda: status(stage, accepted.id) == "completed", timeout=PATIENCE_S, what="the send's completion")
    spent = usage.spent_us(before, usage.cpu_of(roots), per=count)
    completed_at, first, last = _moments(stage, accepted.id)
    taken, found = stage.sink.count(), books(stage.ledger, accepted.id)
    assert found == {"sent": count}, found
    assert taken == {"total": count, "distinct": count, "duplicates": 0}, taken
    end_to_end, span = completed_at.timestamp() - accepted.at, (last - first).total_seconds()
    return {
        "per_s": round(count / end_to_end),
        "per_s_span": round(count / span),
        "accepted_s": round(accepted.taken_s, 3),
        "end_to_end_s": round(end_to_end, 3),
        "span_s": round(span, 3),
        "cpu_us": grouped(spent),
    }


def grouped(spent: Mapping[str, int]) -> dict[str, int]:
    """The figures per process with all types of workers, and the clock, taken together."""
    groups = {"worker": 0, "web": 0, "postgres": 0, "redis": 0, "sink": 0}
    for name, value in spent.items():
        groups["worker" if name.startswith(("worker", "clock")) else name] += value
    return groups


def median_of(runs: Sequence[Mapping[str, object]], name: str) -> float:
    """The median of one figure."""
    return statistics.median(all_of(runs, name))


def all_of(runs: Sequence[Mapping[str, object]], name: str) -> list[float]:
    """One figure of every run."""
    return [float(str(run[name])) for run in runs]


def _moments(stage: Stage, send_id: UUID) -> tuple[datetime, datetime, datetime]:
    with stage.ledger.autocommit() as connection:
        row = connection.execute(
            "SELECT completed_at, min(a.started_at), max(a.ended_at)"
            " FROM send s JOIN attempt a ON a.send_id = s.id WHERE s.id = %s GROUP BY completed_at",
            [send_id],
        ).fetchone()
    assert row is not None
    return row

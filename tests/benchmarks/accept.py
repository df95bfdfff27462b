"""
Acceptance on real servers: `python -m tests.benchmarks.accept [--recipients 100000] [--key] [--runs 3]`.

Starts a Postgres with its ordinary durability, a Valkey and the Procfile's web process, submits one merge
e-mail to N recipients with two params each, and prints one JSON line: the median time from the first byte sent to the
202, that of a refusal for a fault in the last recipient, and the web process's CPU time
and memory above idle (Linux).
"""

import argparse
import http.client
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from admin.local.place import make_private, server_account
from admin.local.ports import LOOPBACK, pick
from admin.local.postgres import Postgres
from admin.local.tether import Tether
from admin.local.valkey import Valkey
from shared.domain.states import Mode
from shared.ledger import tenants
from shared.ledger.db import Ledger
from shared.ledger.migrate import upgrade
from tests.support.processes import ProcessStarter, RunningProcess

_GUNICORN = ["python", "-m", "gunicorn", "admin.wsgi:app", "--worker-class", "gthread", "--threads", "160"]
_LINE = "your parcel is on its way and will reach you on the day that you chose. "
TEXT = "Dear {{ name }},\n\n" + _LINE * 15 + "{{ code }}\n"


def submission(recipients: int, *, bad_last: bool = False) -> bytes:
    """The body of a merge e-mail."""
    rows = [
        {"to": f"recipient{number}@example.com", "params": {"name": f"Person {number}", "code": f"C-{number:08}"}}
        for number in range(recipients)
    ]
    if bad_last:
        rows[-1]["to"] = "nobody@"
    return json.dumps({"email": {"subject": "For {{ name }}", "text": TEXT, "recipients": rows}}).encode()


@contextmanager
def web(folder: Path) -> Iterator[tuple[str, str, RunningProcess]]:
    """A running web process: its address, a key, and the process."""
    tether = Tether()
    account = server_account()
    postgres = Postgres(make_private(folder / "pg", account), tether=tether, account=account)
    valkey = Valkey(make_private(folder / "valkey", account), tether=tether, account=account)
    database_url, redis_url = postgres.start(), valkey.start()
    starter = ProcessStarter(tether, folder, dict)
    try:
        upgrade(database_url)
        key = _key(database_url)
        address = f"http://{LOOPBACK}:{pick()}"
        process = starter(
            [*_GUNICORN, "--no-control-socket", "--bind", urlsplit(address).netloc],
            env={"DATABASE_URL": database_url, "REDIS_URL": redis_url},
            ready=f"{address}/healthz",
        )
        yield address, key, process
    finally:
        starter.end_all()
        valkey.stop()
        postgres.stop()
        tether.close()


def _key(database_url: str) -> str:
    ledger = Ledger(database_url, size=1, name="benchmark")
    ledger.open()
    with ledger.transaction() as connection:
        tenant = tenants.create_tenant(connection, name="benchmark", email_from="news@example.com")
        secret = tenants.create_key(connection, tenant_id=tenant, mode=Mode.LIVE, name="benchmark")[1]
    ledger.close()
    return secret


def submit(address: str, key: str, body: bytes, *, idempotency_key: str | None = None) -> tuple[float, int]:
    """Seconds from the first byte to the answer, and its status."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=120)
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    if idempotency_key:
        headers["Idempotency-Key"] = idempotency_key
    started = time.perf_counter()
    connection.request("POST", "/api/v1/sends", body, headers)
    response = connection.getresponse()
    response.read()
    taken = time.perf_counter() - started
    connection.close()
    return taken, response.status


@dataclass(frozen=True)
class Use:
    """Resident MB now and at the peak, and CPU seconds so far; zeros where there is no /proc."""

    now_mb: float = 0.0
    peak_mb: float = 0.0
    cpu_s: float = 0.0


def use_of(process: RunningProcess) -> Use:
    """What the worker under gunicorn's master has used."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    if not children.exists():
        return Use()
    worker = Path("/proc") / children.read_text().split()[0]
    lines = (worker / "status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    now, peak = (int(fields[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM"))
    ticks = (worker / "stat").read_text().rpartition(")")[2].split()[11:13]
    return Use(now, peak, sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipients", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--key", action="store_true", help="with an Idempotency-Key: the body is fingerprinted too")
    options = parser.parse_args()
    body = submission(options.recipients)
    bad = submission(options.recipients, bad_last=True)
    with tempfile.TemporaryDirectory(prefix="tidings-bench-") as folder, web(Path(folder)) as (address, key, process):
        submit(address, key, submission(10))
        idle = use_of(process)
        runs = [
            submit(address, key, body, idempotency_key=f"run-{run}" if options.key else None)
            for run in range(options.runs)
        ]
        after = use_of(process)
        refused, refused_status = submit(address, key, bad)
        peak = use_of(process).peak_mb
    assert {status for _, status in runs} == {202}
    assert refused_status == 422
    result = {
        "case": "accept",
        "recipients": options.recipients,
        "idempotency_key": options.key,
        "body_mb": round(len(body) / 1e6, 1),
        "accepted_s": round(statistics.median(taken for taken, _ in runs), 2),
        "refused_s": round(refused, 2),
        "cpu_s": round((after.cpu_s - idle.cpu_s) / options.runs, 2),
        "idle_mb": round(idle.now_mb),
        "peak_above_idle_mb": round(peak - idle.now_mb),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()

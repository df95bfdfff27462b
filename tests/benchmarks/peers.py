"""The same job for others: N rows in Postgres, one POST each with the rendered body, the outcome committed."""

import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import redis

from tests.benchmarks import usage
from tests.benchmarks.accept import TEXT
from tests.benchmarks.bench import Bench, InstallError, Line
from tests.benchmarks.machine import say
from tests.support.processes import CHECKOUT
from tests.support.servers import temporary_database
from tests.support.sink import SinkHandle, running_sink

_TABLE = """
    CREATE TABLE job (
        id int PRIMARY KEY, address text NOT NULL, params jsonb NOT NULL, status text NOT NULL DEFAULT 'owed',
        claim uuid, ref text, sent_at timestamptz
    ) WITH (fillfactor = 70)
"""
PROGRAMS = Path(__file__).with_name("programs")
#: rows that a program works through before it says READY: compiled code and open connections, as ours have them
WARM_UP = 1_000
#: s; for one run of a peer
_PATIENCE_S = 300.0
_LOOK_S = 0.1


@dataclass(frozen=True)
class Job:
    """Where a peer finds its work and its provider; the names are those of its environment."""

    database_url: str
    redis_url: str
    sink: SinkHandle
    count: int

    def environment(self, **more: str) -> dict[str, str]:
        """What every program of a peer is told."""
        return {
            "PATH": os.environ.get("PATH", os.defpath),  # noqa: TID251
            "HOME": os.environ.get("HOME", "/"),  # noqa: TID251
            "JOB_DATABASE_URL": self.database_url,
            "JOB_REDIS_URL": self.redis_url,
            "JOB_SINK_URL": f"{self.sink.url}/api/v1/email",
            "JOB_COUNT": str(self.count),
            "JOB_WARM_UP": str(WARM_UP),
            "JOB_TEXT": TEXT,
            **more,
        }


@contextmanager
def job(bench: Bench, *, count: int) -> Iterator[Job]:
    """A fresh database with the rows (those of the warm-up come last), an empty Redis, a sink."""
    with running_sink() as sink, temporary_database(bench.servers.postgres_url) as url:
        with psycopg.connect(url) as connection:
            connection.execute(_TABLE)
            with connection.cursor().copy("COPY job (id, address, params) FROM STDIN") as copy:
                for number in range(1, count + WARM_UP + 1):
                    params = {"name": f"Person {number}", "code": f"C-{number:08}"}
                    copy.write_row((number, f"recipient{number}@example.com", json.dumps(params)))
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE job")
        with redis.Redis.from_url(bench.servers.redis_url) as client:
            client.flushall()
        yield Job(url, bench.servers.redis_url, sink, count)


def measure(bench: Bench, work: Job, command: Sequence[str], *, environment: Mapping[str, str]) -> Line:
    """
    Run a program that says READY, is told to go, and works or enqueues until all rows are sent.

    `per_s` counts from "go" to the last outcome's commit, `per_s_span` from the first arrival at the provider.
    CPU counts from "go" on, that of all the program's processes together.
    """
    process = bench.servers.tether.start(
        command, cwd=CHECKOUT, env=environment, stdin=subprocess.PIPE, output=subprocess.PIPE
    )
    try:
        _wait_for_ready(process)
        work.sink.reset()
        roots = {"client": process.pid, **bench.servers.roots, "sink": work.sink.pid}
        before = usage.cpu_of(roots)
        begun = time.time()
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
        last = _wait_for_all(work, process)
        spent = usage.spent_us(before, usage.cpu_of(roots), per=work.count)
    finally:
        process.kill()
        process.wait()
        bench.servers.tether.forget(process)
    counts = work.sink.count()
    assert counts["distinct"] == counts["total"] == work.count, counts
    return {
        "per_s": round(work.count / (last - begun)),
        "per_s_span": round(work.count / (last - min(work.sink.arrivals().values()))),
        "cpu_us": spent,
    }


def _wait_for_ready(process: "subprocess.Popen[bytes]") -> None:
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        if line.startswith(b"READY"):
            return
        said.append(line.decode(errors="replace"))
    raise RuntimeError("the program did not get ready:\n" + "".join(said)[-2000:])


def _wait_for_all(work: Job, process: "subprocess.Popen[bytes]") -> float:
    """Unix time of the last outcome."""
    until = time.monotonic() + _PATIENCE_S
    with psycopg.connect(work.database_url, autocommit=True) as connection:
        while connection.execute("SELECT EXISTS (SELECT FROM job WHERE status <> 'sent')").fetchone() == (True,):
            if process.poll() not in (None, 0) or time.monotonic() > until:
                raise RuntimeError(f"the program did not finish (exit code {process.poll()})")
            time.sleep(_LOOK_S)
        row = connection.execute(
            "SELECT extract(epoch FROM max(sent_at))::float8 FROM job WHERE id <= %s", [work.count]
        ).fetchone()
    assert row is not None
    return float(row[0])


def cache_folder(name: str) -> Path:
    """Where a peer is installed: outside the checkout, kept between runs."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")  # noqa: TID251
    folder = Path(home) / "tidings-benchmarks" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def install(command: Sequence[str], *, folder: Path) -> None:
    """
    Run an installer.

    Raises: InstallError with the end of what it said.
    """
    say(f"installing in {folder}: {' '.join(command)}")
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=300)
    except FileNotFoundError:
        raise InstallError(f"{command[0]} is not on this machine") from None
    except subprocess.TimeoutExpired:
        raise InstallError(f"{command[0]} took more than 300 s") from None
    except subprocess.CalledProcessError as error:
        raise InstallError(f"{command[0]} failed: {(error.stderr or error.stdout).strip()[-300:]}") from None

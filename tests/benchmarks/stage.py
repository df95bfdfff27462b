"""Where a benchmark runs: durable servers, a fresh database per case, the Procfile's processes, a sink."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import redis

from admin.local import procfile
from admin.local.ports import LOOPBACK, pick
from admin.local.tether import Tether
from shared.domain.states import Mode
from shared.ledger import tenants
from shared.ledger.db import Ledger
from shared.ledger.migrate import upgrade
from shared.settings import load
from tests.benchmarks import usage
from tests.support.processes import CHECKOUT, ProcessStarter, RunningProcess, answers
from tests.support.servers import postgres_server, redis_server, temporary_database
from tests.support.sink import SinkHandle, running_sink
from tests.support.waiting import wait_until
from workers.broker import make_worker
from workers.middleware.runtime import Runtime

#: The process types of the Procfile that stay up, in the order of their start.
ALL = ("web", "worker_ingest", "worker_send", "worker_bulk", "worker_ops", "clock")
#: Slots are taken and given back as ever, but more than the threads can use: the cap itself is not what is measured.
CAP = 1_000


@dataclass(frozen=True)
class Servers:
    """The two stores and what starts further processes; they serve all cases of a run."""

    tether: Tether
    folder: Path
    postgres_url: str
    redis_url: str

    @property
    def versions(self) -> dict[str, str]:
        """Of the two stores."""
        with psycopg.connect(self.postgres_url) as connection, redis.Redis.from_url(self.redis_url) as client:
            number = connection.info.server_version
            info = client.info("server")
            return {
                "postgres": f"{number // 10000}.{number % 10000}",
                "redis": f"{info.get('server_name', 'redis')} {info.get('valkey_version', info['redis_version'])}",
            }

    @property
    def roots(self) -> dict[str, int]:
        """The process that each store's tree begins with."""
        with psycopg.connect(self.postgres_url) as connection, redis.Redis.from_url(self.redis_url) as client:
            return {
                "postgres": usage.parent_of(connection.info.backend_pid),
                "redis": int(client.info("server")["process_id"]),
            }


@contextmanager
def servers() -> Iterator[Servers]:
    """Embedded servers with their ordinary durability: fsync, full pages, append-only file."""
    tether = Tether()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="tidings-bench-") as folder,
            postgres_server(None, tether, durable=True) as postgres_url,
            redis_server(None, tether, durable=True) as redis_url,
        ):
            yield Servers(tether, Path(folder), postgres_url, redis_url)
    finally:
        tether.close()


@dataclass
class Stage:
    """A running Tidings with an empty ledger: its addresses, a key, its processes by the Procfile's names."""

    servers: Servers
    sink: SinkHandle
    database_url: str
    address: str
    key: str
    ledger: Ledger
    environment: Mapping[str, str]
    starter: ProcessStarter
    processes: dict[str, RunningProcess] = field(default_factory=dict)

    def start(self, names: Sequence[str], *, module: str = "workers.main") -> None:
        """Start these process types and wait until they work; `module` stands in for what the workers load."""
        entries = {entry.name: entry for entry in procfile.read(CHECKOUT / "Procfile")}
        before = self._live_workers()
        for name in names:
            entry = entries[name]
            command = entry._replace(command=_with_module(entry.command, module)).shell_command
            self.processes[name] = self.starter(command, env=self.environment, name=name)
        wanted = before + sum(name.startswith("worker_") for name in names)
        web = "web" in names

        def ready() -> bool:
            self._none_has_ended()
            return self._live_workers() >= wanted and (not web or answers(f"{self.address}/readyz"))

        wait_until(ready, timeout=60, what=f"{', '.join(names)} to be ready")

    def stop(self, name: str) -> None:
        """Drain one process type."""
        self.processes.pop(name).terminate()

    def roots(self) -> dict[str, int]:
        """Where the tree of every process type, store and the sink begins."""
        named = {name: running.pid for name, running in self.processes.items()}
        return {**named, **self.servers.roots, "sink": self.sink.pid}

    def _none_has_ended(self) -> None:
        for name, running in self.processes.items():
            if not running.is_running():
                raise RuntimeError(f"{name} ended with {running.process.returncode}:\n{running.output()[-3000:]}")

    def _live_workers(self) -> int:
        with self.ledger.autocommit() as connection:
            row = connection.execute("SELECT count(*) FROM worker WHERE lease_until > now()").fetchone()
        return 0 if row is None else int(row[0])


def _with_module(command: str, module: str) -> str:
    """A Procfile's command with another module in the place of `workers.main`."""
    if module == "workers.main":
        return command
    return command.replace("python -m workers ", f"dramatiq {module} --processes 1 --skip-logging ")


@contextmanager
def stage(
    servers: Servers, *, latency_ms: int = 0, names: Sequence[str] = ALL, settings: Mapping[str, str] | None = None
) -> Iterator[Stage]:
    """
    Set a stage for one case and clear it afterwards.

    Args:
        latency_ms: what the provider takes for an answer.
        names: process types to start; more can be started later.
        settings: environment variables on top of the stage's own.
    """
    with ExitStack() as stack:
        sink = stack.enter_context(running_sink(latency_ms))
        database_url = stack.enter_context(temporary_database(servers.postgres_url))
        upgrade(database_url)
        with redis.Redis.from_url(servers.redis_url) as client:
            client.flushall()
        ledger = Ledger(database_url, size=4, name="benchmark")
        ledger.open()
        stack.callback(ledger.close)
        address = f"http://{LOOPBACK}:{pick()}"
        environment = {
            "DATABASE_URL": database_url,
            "REDIS_URL": servers.redis_url,
            "PORT": str(urlsplit(address).port),
            "WEB_BIND": LOOPBACK,
            "EMAIL_PROVIDER": "ches",
            "CHES_BASE_URL": f"{sink.url}/api/v1",
            "CHES_TOKEN_URL": f"{sink.url}/token",
            "CHES_CLIENT_ID": "benchmark",
            "CHES_CLIENT_SECRET": "benchmark",
            "CHES_MAX_CONCURRENT_REQUESTS": str(CAP),
            "PYTHONWARNINGS": "",
            **(settings or {}),
        }
        starter = ProcessStarter(servers.tether, Path(tempfile.mkdtemp(dir=servers.folder)), dict)
        stack.callback(starter.end_all)
        made = Stage(servers, sink, database_url, address, _key(ledger), ledger, environment, starter)
        made.start(names)
        yield made


def _key(ledger: Ledger) -> str:
    with ledger.transaction() as connection:
        tenant = tenants.create_tenant(connection, name="benchmark", email_from="news@example.com")
        return tenants.create_key(connection, tenant_id=tenant, mode=Mode.LIVE, name="benchmark")[1]


@contextmanager
def worker_runtime(database_url: str, redis_url: str, **settings: object) -> Iterator[Runtime]:
    """What a worker works with, in this process."""
    _, runtime = make_worker(load(database_url=database_url, redis_url=redis_url, **settings), process="benchmark")
    runtime.ledger.open()
    try:
        yield runtime
    finally:
        runtime.ledger.close()
        runtime.link.close()

"""The Procfile's processes, several of a kind where wanted, each to be killed, frozen, drained and started again."""

import re
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from signal import SIGCONT, SIGSTOP, SIGTERM
from urllib.parse import urlsplit

from admin.local import procfile
from admin.local.ports import LOOPBACK, pick
from admin.local.tether import Tether
from shared.ledger.db import POSTGRES_AWAY, Ledger
from tests.support.processes import CHECKOUT, ProcessStarter, RunningProcess, answers
from tests.support.waiting import wait_until

#: Two of each that send, one of the rest: every process type has a living brother or is started again.
MEMBERS = ("web", "worker_ingest", "worker_send", "worker_bulk", "worker_bulk.2", "worker_ops", "clock")
#: s; the programs of seven processes are loaded at once, on two cores that others use too
_START_S = 90.0
#: s; QUEUE_SHUTDOWN_DRAIN_MS and what an interpreter takes to end
_DRAIN_S = 27.0
#: s; instead of a platform's 30, for a process that was told to end while it was loading
_LOADING_S = 5.0
#: s; for calls to strike to begin
_STRIKE_S = 20.0

#: What dramatiq, our clock and gunicorn say when they can be asked to end.
_READY = re.compile("ready for action|clock_started|Listening at")

#: Of a dead process a commit may still be on its way into Postgres: its batch is locked until then, and waited for.
_IN_FLIGHT = """
SELECT coalesce(sum(held.sending), 0) FROM (
    SELECT b.sending FROM batch b JOIN worker w ON w.id = b.holder
    WHERE substring(w.name FROM ':([0-9]+)$')::int = ANY (%s)
    FOR SHARE OF b
) AS held
"""


@dataclass(frozen=True)
class Death:
    """A kill and the calls that were in flight at it, as the ledger shows them: claimed and not recorded."""

    member: str
    in_flight: int


class Fleet:
    """
    The processes of one environment; members are named as in the Procfile, a second one with ".2".

    A platform starts a dead process again: so does `kill`, unless told otherwise.
    """

    def __init__(self, tether: Tether, folder: Path, environment: Mapping[str, str], ledger: Ledger) -> None:
        self.address = f"http://{LOOPBACK}:{pick()}"
        own = {"PORT": str(urlsplit(self.address).port), "WEB_BIND": LOOPBACK, "PYTHONWARNINGS": ""}
        self.environment = {**environment, **own}
        self._starter = ProcessStarter(tether, folder, dict)
        self._ledger = ledger
        self._commands = {each.name: each.shell_command for each in procfile.read(CHECKOUT / "Procfile")}
        self._running: dict[str, RunningProcess] = {}
        self._frozen: set[str] = set()
        self.deaths: list[Death] = []

    @property
    def members(self) -> Sequence[str]:
        return list(self._running)

    def start(self, member: str) -> None:
        """Start a member; does not wait for it."""
        command = self._commands[member.partition(".")[0]]
        self._running[member] = self._starter(command, env=self.environment, name=member)

    def wait_until_ready(self) -> None:
        """Wait until every worker has its lease and the API answers."""
        workers = sum(member.startswith("worker_") for member in self._running)

        def ready() -> bool:
            self.check()
            web = "web" not in self._running or answers(f"{self.address}/readyz")
            return web and self._leases() >= workers

        wait_until(ready, timeout=_START_S, what="the fleet to be ready")

    def wait_for(self, member: str) -> None:
        """Wait until one member says that it is up."""
        wait_until(lambda: _READY.search(self._running[member].output()), timeout=_START_S, what=f"{member} to be up")

    def check(self) -> None:
        """Fail where a process ended that nobody told to."""
        for member, running in self._running.items():
            if not running.is_running():
                raise AssertionError(
                    f"{member} ended by itself with {running.process.returncode}:\n{running.output()[-4000:]}"
                )

    def kill(self, member: str, *, again: bool = True) -> Death:
        """SIGKILL to a process and all it forked."""
        pids = _group(self._running[member].pid)
        self._running.pop(member).kill()
        self._frozen.discard(member)
        death = Death(member, self._left_in_flight(pids))
        self.deaths.append(death)
        if again:
            self.start(member)
        return death

    def kill_busiest(self, *, among: str) -> Death:
        """Kill the one with most calls in flight; where there is none, one may begin some within a process's start."""
        with suppress(AssertionError):
            wait_until(lambda: self.in_flight(self.busiest(among=among)), timeout=_STRIKE_S)
        return self.kill(self.busiest(among=among))

    def term(self, member: str) -> None:
        """SIGTERM to the whole group, twice, as a platform does; does not wait for the end."""
        self._running[member].signal_group(SIGTERM)
        self._running[member].signal_group(SIGTERM)

    def drain(self, member: str, *, again: bool = True, signals: str = "twice") -> None:
        """
        SIGTERM to the "main" process alone, to its whole "group", or to the group "twice"; it must end with 0 in time.

        One that is still loading its program has nothing to give back, and may not hear it: dramatiq's main process
        waits for a child that a signal ended before its handlers were complete (2.2, cli.py: `logger` in
        `termhandler`). The platform's SIGKILL ends it.
        """
        running = self._running[member]
        loading = not _READY.search(running.output())
        match signals:
            case "main":
                running.signal(SIGTERM)
            case "group":
                running.signal_group(SIGTERM)
            case _:
                self.term(member)
        del self._running[member]
        if loading:
            with suppress(AssertionError):
                running.wait(_LOADING_S)
            running.kill()
        else:
            code = running.wait(_DRAIN_S)
            assert code == 0, f"{member} ended its drain with {code}:\n{running.output()[-4000:]}"
            running.kill()  # it has ended: what is left of its group, if anything, is no longer ours to find later
        if again:
            self.start(member)

    def freeze(self, member: str) -> None:
        """SIGSTOP to the whole group."""
        self._running[member].signal_group(SIGSTOP)
        self._frozen.add(member)

    def thaw(self) -> None:
        """SIGCONT to all that are frozen."""
        for member in self._frozen:
            self._running[member].signal_group(SIGCONT)
        self._frozen.clear()

    def busiest(self, *, among: str) -> str:
        """The member that has most calls in flight."""
        members = [member for member in self._running if member.startswith(among)]
        return max(members, key=self.in_flight)

    def in_flight(self, member: str) -> int:
        """Its calls that were claimed and are not recorded."""
        return self._left_in_flight(_group(self._running[member].pid))

    def output(self) -> str:
        """The end of what each process wrote, dead ones included."""
        return "\n".join(f"--- {each.name}\n{each.output()[-12_000:]}" for each in self._starter.started)

    def end(self) -> None:
        self.thaw()
        self._starter.end_all()
        self._running.clear()

    def _left_in_flight(self, pids: list[int]) -> int:
        try:
            with self._ledger.autocommit() as connection:
                row = connection.execute(_IN_FLIGHT, [pids]).fetchone()
        except POSTGRES_AWAY:
            return int(self.environment["CHES_MAX_CONCURRENT_REQUESTS"])  # nobody can tell; more there cannot be
        return int(row[0]) if row else 0

    def _leases(self) -> int:
        with self._ledger.autocommit() as connection:
            row = connection.execute("SELECT count(*) FROM worker WHERE lease_until > now()").fetchone()
        return int(row[0]) if row else 0


def _group(leader: int) -> list[int]:
    """The processes of a group."""
    table = subprocess.run(["ps", "-axo", "pid=,pgid="], capture_output=True, text=True, check=True).stdout
    return [pid for pid, group in (map(int, line.split()) for line in table.splitlines()) if group == leader]

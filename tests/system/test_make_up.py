"""`make up` as a newcomer meets it: the real processes, one real send, and an end without remains."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import ProcessStarter, RunningProcess, is_alive
from tests.support.waiting import wait_until

#: s; the programs of seven processes are loaded at once, on two cores that others use too
START_TIMEOUT = 90.0
PROCESSES = ("web", "worker_ingest", "worker_send", "worker_bulk", "worker_ops", "clock")


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where the run keeps its data: not the checkout's own, which may be in use."""
    asked = Path(tempfile.mkdtemp(prefix="tidings-test-"))
    yield asked
    shutil.rmtree(asked)


@pytest.fixture
def make_up(process: ProcessStarter, folder: Path) -> RunningProcess:
    return process(
        ["make", "up", f"VENV={sys.prefix}", f"ARGS=--folder {folder}"],
        env={"DATABASE_URL": "", "REDIS_URL": ""},
        ready="Tidings is running",
        timeout=START_TIMEOUT,
    )


def send_as_shown(output: str) -> tuple[str, dict[str, str], str]:
    """Do what the printed curl line does; give the address of the API, the headers, and the new send's id."""
    line = next(line for line in output.splitlines() if line.strip().startswith("curl "))
    words = shlex.split(line)
    url = next(word for word in words if word.startswith("http"))
    headers = dict(words[i + 1].split(": ", 1) for i, word in enumerate(words) if word == "-H")
    body = words[words.index("-d") + 1].encode()
    with urllib.request.urlopen(urllib.request.Request(url, data=body, headers=headers), timeout=10) as answer:
        assert answer.status == 202
        return url, headers, str(json.load(answer)["id"])


def get(url: str, headers: dict[str, str]) -> str:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as answer:
        return str(answer.read().decode())


@pytest.mark.timeout(240)
def test_the_printed_line_sends_a_message_that_reaches_the_inbox_and_ctrl_c_ends_everything(
    make_up: RunningProcess,
) -> None:
    url, headers, send_id = send_as_shown(make_up.output())
    wait_until(
        lambda: json.loads(get(f"{url}/{send_id}", headers))["status"] == "completed",
        timeout=30,
        what=f"send {send_id} to be settled",
    )
    link, inbox = (re.search(rf"{name} +(\S+)", make_up.output()) for name in ("Pages", "Inbox"))
    assert link
    assert inbox
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with browser.open(link[1], timeout=10) as page:
        assert page.url.endswith("/admin/monitoring")
    with browser.open(inbox[1], timeout=10) as page:
        assert "Hello Ada" in page.read().decode()
    family = descendants(make_up.pid)
    assert len(family) > 7

    make_up.signal_group(signal.SIGINT)  # as the terminal does: to make and to what it runs
    make_up.wait(60)
    output = make_up.output()
    for name in PROCESSES:
        assert re.search(rf"{name} ended \((exit code 0|signal SIGTERM)\)", output), name
    assert "killed" not in output
    ends = [output.index(f"{name} ended") for name in PROCESSES]
    servers = [output.index(f"stopping the embedded {name}") for name in ("Postgres", "Valkey")]
    assert output.index("stopping: work in hand is finished") < min(ends) < max(ends) < min(servers)
    wait_until(lambda: not any(map(is_alive, family)), timeout=5, what="the end of all it started")


@pytest.mark.timeout(240)
def test_nothing_of_the_real_processes_outlives_a_killed_supervisor(make_up: RunningProcess, folder: Path) -> None:
    family = descendants(make_up.pid)
    assert len(family) > 7
    os.kill(int((folder / "lock").read_text()), signal.SIGKILL)
    wait_until(lambda: not any(map(is_alive, family)), timeout=10, what="the end of all it started")


def descendants(ancestor: int) -> set[int]:
    """All that the process started, directly or not, and itself."""
    table = subprocess.run(["ps", "-axo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(pid): int(parent) for pid, parent in map(str.split, table.splitlines())}
    found = {ancestor}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found

"""A process that ends badly says so in one line: its code, the signal, the last error."""

import json
import os
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import Any

import pytest

from admin.local.procfile import read
from tests.support.processes import CHECKOUT, ProcessStarter, RunningProcess
from tests.support.scripted_http import free_port
from tests.support.waiting import wait_until

COMMANDS = {entry.name: entry.shell_command for entry in read(CHECKOUT / "Procfile")}


def lines(process: RunningProcess) -> list[dict[str, Any]]:
    found = []
    for line in process.output().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def last_words(process: RunningProcess) -> list[dict[str, Any]]:
    return [line for line in lines(process) if line["event"] == "process_ended_badly"]


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_worker_that_is_killed_is_named_by_dramatiqs_main_process(process: ProcessStarter) -> None:
    worker = process(COMMANDS["worker_bulk"], ready="ready for action", timeout=30)
    for child in children(worker.pid):
        if "workers" in Path(f"/proc/{child}/cmdline").read_text():
            os.kill(child, SIGKILL)
    assert worker.wait() != 0
    [said] = last_words(worker)
    assert said["signal"] == "SIGKILL"
    assert "exited unexpectedly (code -9)" in said["last_error"]


@pytest.mark.parametrize("name", ["worker_bulk", "clock"])
def test_a_process_with_a_fault_says_its_code_and_its_last_error(process: ProcessStarter, name: str) -> None:
    ended = process(COMMANDS[name], env={"REDIS_URL": "redis://127.0.0.1:port/0"})
    assert ended.wait() == 1
    said = last_words(ended)
    assert said, ended.output()
    assert said[0]["code"] == 1
    assert said[0]["error"] or said[0]["last_error"]


@pytest.mark.parametrize("name", ["worker_ops", "worker_bulk", "clock"])
def test_a_clean_stop_has_no_last_words(process: ProcessStarter, name: str) -> None:
    ended = process(COMMANDS[name], ready="clock_started|ready for action", timeout=30)
    assert ended.terminate() == 0
    assert last_words(ended) == []


def test_gunicorn_tells_of_a_killed_worker_in_our_format(process: ProcessStarter) -> None:
    port = free_port()
    web = process(
        COMMANDS["web"],
        env={"PORT": str(port), "WEB_BIND": "127.0.0.1"},
        ready=f"http://127.0.0.1:{port}/healthz",
        timeout=30,
    )
    [worker] = children(web.pid)
    os.kill(worker, SIGKILL)
    wait_until(
        lambda: any(line["level"] == "ERROR" and "SIGKILL" in line.get("message", "") for line in lines(web)),
        what="the line about the killed worker",
    )
    web.signal(SIGTERM)
    assert web.wait() == 0

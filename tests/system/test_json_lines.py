"""Under LOG_FORMAT=json every line of every process of the Procfile is a JSON object, from its first to its last."""

import json
from signal import SIGTERM

import pytest

from admin.local.procfile import read
from tests.support.processes import CHECKOUT, ProcessStarter
from tests.support.scripted_http import free_port

COMMANDS = {entry.name: entry.shell_command for entry in read(CHECKOUT / "Procfile")}
#: What each process writes once it works; release ends by itself.
READY = {"clock": "clock_started"}


def _environment() -> dict[str, str]:
    return {"LOG_FORMAT": "json", "PORT": str(free_port()), "WEB_BIND": "127.0.0.1"}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_line_of_a_process_is_json(process: ProcessStarter, name: str) -> None:
    environment = _environment()
    if name == "release":
        running = process(COMMANDS[name], env=environment)
    else:
        is_up = f"http://127.0.0.1:{environment['PORT']}/healthz" if name == "web" else READY.get(name, "ready for")
        running = process(COMMANDS[name], env=environment, ready=is_up)
        running.signal(SIGTERM)
    assert running.wait() == 0
    lines = running.output().splitlines()
    assert lines
    for line in lines:
        assert {"time", "level", "event", "process"} <= json.loads(line).keys(), line


def test_the_masters_first_line_is_json_and_bows_to_the_level(process: ProcessStarter) -> None:
    environment = _environment()
    web = process(COMMANDS["web"], env=environment, ready="Starting gunicorn")
    assert json.loads(web.output().splitlines()[0])["process"] == "web main"
    quiet = _environment() | {"LOG_LEVEL": "WARNING"}
    web = process(COMMANDS["web"], env=quiet, ready=f"http://127.0.0.1:{quiet['PORT']}/healthz")
    assert "Starting gunicorn" not in web.output()


def test_a_release_that_fails_says_so_in_json(process: ProcessStarter) -> None:
    away = f"postgresql://u:hidden-word@127.0.0.1:{free_port()}/d"
    running = process(COMMANDS["release"], env={"LOG_FORMAT": "json", "DATABASE_URL": away})
    assert running.wait() == 1
    lines = [json.loads(line) for line in running.output().splitlines()]
    assert "could not be migrated" in lines[-1]["message"]
    assert "hidden-word" not in running.output()

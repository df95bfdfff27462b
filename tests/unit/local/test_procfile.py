from pathlib import Path

import pytest

from admin.local import procfile
from admin.local.place import SetupError

CHECKOUT = Path(__file__).resolve().parents[3]


def test_entries_come_in_their_order_without_comments_and_blank_lines() -> None:
    text = "# what runs\n\nweb: gunicorn app --bind :$PORT\n  clock:python -m workers.clock  \n"
    assert procfile.parse(text) == [("web", "gunicorn app --bind :$PORT"), ("clock", "python -m workers.clock")]


@pytest.mark.parametrize("line", ["web", "web:", "web worker: x", ": x"])
def test_a_line_that_is_no_entry_is_named(line: str) -> None:
    with pytest.raises(SetupError, match="line 2"):
        procfile.parse(f"clock: x\n{line}\n")


def test_a_name_that_comes_twice_is_refused() -> None:
    with pytest.raises(SetupError, match="web is there already"):
        procfile.parse("web: a\nweb: b\n")


@pytest.mark.parametrize(
    "command",
    ["python -m workers.clock", "gunicorn a:b --threads ${N:-1}", "dramatiq m --timeout $((${MS:-25000} - 1000)) -p 1"],
)
def test_the_shell_gives_way_to_a_simple_command(command: str) -> None:
    assert procfile.Entry("x", command).shell_command[-1] == f"exec {command}"


@pytest.mark.parametrize("command", ["cd a && b", "A=1 b", "a | b", "a; b", "b $(a)", "a > b"])
def test_the_shell_stays_for_anything_else(command: str) -> None:
    entry = procfile.Entry("x", command)
    assert entry.shell_command[-1] == command


def test_the_project_has_the_processes_that_its_documents_name() -> None:
    names = [entry.name for entry in procfile.read(CHECKOUT / "Procfile")]
    assert names == ["release", "web", "worker_ingest", "worker_send", "worker_bulk", "worker_ops", "clock"]


def test_every_process_of_the_project_is_a_simple_command() -> None:
    for entry in procfile.read(CHECKOUT / "Procfile"):
        assert entry.shell_command[-1].startswith("exec "), entry.name

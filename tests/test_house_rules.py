"""Rules of the house that neither the formatter nor the type checker knows; CONTRIBUTING.md says them in words."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.ledger import queries

CHECKOUT = Path(__file__).resolve().parents[1]
CODE = ("shared", "workers", "admin", "migrations")
#: Where text is looked at; what tools leave behind is not ours.
TEXTS = (*CODE, "tests", "docs", ".ci")
SUFFIXES = {
    ".py",
    ".sql",
    ".lua",
    ".md",
    ".html",
    ".css",
    ".toml",
    ".txt",
    ".mako",
    ".ini",
    ".yml",
    ".yaml",
    ".json",
    "",
}

#: Lines of a code file, a test file and a Lua script. A longer one usually holds two nouns.
LONGEST = {"code": 300, "test": 500, "lua": 65}
#: Files that are one noun all the same, and why.
LONG = {
    "shared/settings.py": "one declaration per setting; the page of the settings is made from it",
    "shared/ledger/models.py": "the schema in one place, for Alembic's comparison",
    "workers/actors/window.py": "one window, from its claim to its last record",
    "workers/providers/smtp_session.py": "one dialogue, stage by stage",
}


def python_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (CHECKOUT / folder).rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(CHECKOUT).as_posix()


def calls(path: Path) -> Iterator[tuple[ast.Call, str]]:
    """Every call in a file, with the dotted name of what is called."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield node, ast.unparse(node.func)


def texts() -> list[Path]:
    files = [path for folder in TEXTS for path in (CHECKOUT / folder).rglob("*")]
    files += [path for path in CHECKOUT.iterdir() if path.is_file()]
    return [path for path in files if path.is_file() and path.suffix in SUFFIXES and "__pycache__" not in path.parts]


def test_who_may_import_whom() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([lint, "--no-cache"], cwd=CHECKOUT, capture_output=True, text=True, check=False, timeout=60)

    assert done.returncode == 0, done.stdout


def test_the_environment_is_read_in_one_place() -> None:
    # `make up` hands its whole environment on to the processes it starts, and reads no setting from it.
    allowed = {"shared/settings.py", "admin/local/__main__.py", "admin/local/tether.py"}
    reads = re.compile(r"\bos\.(environ|getenv)|from os import .*(environ|getenv)")

    assert {name_of(path) for path in python_files(*CODE) if reads.search(path.read_text(encoding="utf-8"))} <= allowed


def test_no_message_is_delayed() -> None:
    delayed = [
        f"{name_of(path)}:{call.lineno}"
        for path in python_files(*CODE)
        for call, _ in calls(path)
        if any(keyword.arg == "delay" for keyword in call.keywords)
    ]
    assert delayed == []


def test_no_actor_retries_in_the_transport() -> None:
    faults = [
        f"{name_of(path)}:{call.lineno}"
        for path in python_files("workers")
        for call, function in calls(path)
        for keyword in call.keywords
        if keyword.arg == "retry_when" or (keyword.arg == "max_retries" and ast.unparse(keyword.value) != "0")
    ]
    assert faults == []


def test_no_test_sleeps_or_replaces_our_code_by_a_mock() -> None:
    # The others wait for no result: a process that competes for something, and the hand that keeps a fault going for
    # the seconds its scenario states.
    allowed = {
        "tests/support/waiting.py",
        "tests/integration/coordination/contender.py",
        "tests/system/chaos/events.py",
    }
    mocks = re.compile(r"^\s*(from|import) (unittest\.mock|mock|freezegun|time_machine|fakeredis)\b", re.MULTILINE)
    sleeping = {
        name_of(path)
        for path in python_files("tests")
        for _, function in calls(path)
        if function in {"time.sleep", "sleep", "asyncio.sleep"} and "benchmarks" not in path.parts
    }
    mocking = {name_of(path) for path in python_files("tests") if mocks.search(path.read_text(encoding="utf-8"))}

    assert sleeping - allowed == set()
    assert mocking == set()


def test_every_named_statement_is_used_and_every_used_one_exists() -> None:
    queries.check()


def test_attempts_and_the_audit_are_only_added_to() -> None:
    changing = re.compile(
        r"\b(UPDATE|DELETE\s+FROM|MERGE\s+INTO|TRUNCATE)\s+(?:ONLY\s+|TABLE\s+)*(attempt|audit)\b", re.I
    )
    found = {
        (path.name, " ".join(words[1].upper().split()), words[2])
        for path in (CHECKOUT / "shared" / "ledger" / "sql").glob("*.sql")
        for words in changing.finditer(path.read_text(encoding="utf-8"))
    }
    assert found == {("retention.sql", "DELETE FROM", "attempt")}  # those of sends that are long over


def test_sql_lives_in_the_ledger() -> None:
    verbs = re.compile(r"\b(INSERT INTO|DELETE FROM|UPDATE \w+ SET|SELECT .+ FROM)\b")
    # Asks the catalogue of a server that it has just made whether the database is there.
    allowed = {"admin/local/postgres.py"}
    elsewhere = {
        name_of(path)
        for path in python_files("shared", "workers", "admin")
        if not name_of(path).startswith("shared/ledger/")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and verbs.search(node.value)
    }
    assert elsewhere - allowed == set()


def test_files_stay_of_a_size_that_can_be_read() -> None:
    def limit(path: Path) -> int:
        return LONGEST["lua" if path.suffix == ".lua" else "test" if "tests" in path.parts else "code"]

    files = [*python_files("shared", "workers", "admin", "tests"), *(CHECKOUT / "shared").rglob("*.lua")]
    lengths = {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    too_long = {name: lines for name, lines in lengths.items() if lines > limit(CHECKOUT / name) and name not in LONG}

    assert too_long == {}


def test_no_module_is_named_for_what_it_is_not() -> None:
    nothing = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "managers", "base"}

    assert [name_of(path) for path in python_files(*CODE, "tests") if path.stem in nothing] == []


@pytest.mark.parametrize(
    ("what", "pattern"),
    [
        ("a path of somebody's machine", r"(?<![\w.])/(?:work|root|home/\w+|Users/\w+)/\w"),
        (
            "the address of a package index",
            r"\b(?:files\.python[h]osted|py[p]i)\.(?:org|python)|--(?:extra-)?index-url[ =]",
        ),
        (
            "a page that is not in the project",
            r"\b(?:design|traps|faults|decisions|house-style|dashboard)\.md\b",
        ),
        ("a conflict", r"^(?:<{7}|>{7}) "),
        ("a number that somebody could have", r"\+1[ -]?604[ -]?(?!555)\d{3}[ -]?\d{4}\b"),
    ],
)
def test_no_text_holds(what: str, pattern: str) -> None:
    found = [
        f"{name_of(path)}:{number}: {line.strip()[:100]}"
        for path in texts()
        if path != Path(__file__).resolve()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if re.search(pattern, line)
    ]
    assert found == [], what


def test_every_link_between_the_pages_leads_somewhere() -> None:
    link = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")
    broken = [
        f"{name_of(page)}: {target}"
        for page in texts()
        if page.suffix == ".md"
        for target in link.findall(page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert broken == []


def test_every_decision_that_is_cited_is_written_down() -> None:
    written = {path.name[:4] for path in (CHECKOUT / "docs/adr").glob("[0-9][0-9][0-9][0-9]-*.md")}
    cited = {
        number: name_of(path)
        for path in texts()
        for number in re.findall(r"\bADR-(\d{4})\b", path.read_text(encoding="utf-8"))
    }
    assert {number: path for number, path in cited.items() if number not in written} == {}

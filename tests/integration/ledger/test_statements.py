"""The named statements: all there, all used, and all understood by a real Postgres."""

import subprocess
import sys
from pathlib import Path

import pytest

from shared.ledger import queries
from shared.ledger.db import Ledger
from tests.support.processes import CHECKOUT

_SQL = CHECKOUT / "shared" / "ledger" / "sql"


def run_check(tmp_path: Path, **files: str) -> str:
    """Run `check()` over the real package with these SQL files added or replaced; what it raised."""
    for folder in ("shared", "workers"):
        (tmp_path / folder).symlink_to(CHECKOUT / folder)
    (tmp_path / "shared").unlink()
    for original in (CHECKOUT / "shared").rglob("*"):
        if "__pycache__" in original.parts or original.is_dir():
            continue
        target = tmp_path / original.relative_to(CHECKOUT)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(original.read_bytes())
    for name, text in files.items():
        (tmp_path / "shared" / "ledger" / "sql" / f"{name}.sql").write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", "from shared.ledger import queries; queries.check()"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr.strip().splitlines()[-1] if done.returncode else ""


def test_every_statement_is_used_and_none_is_missing() -> None:
    queries.check()


def test_a_name_that_no_file_defines_fails_at_once() -> None:
    with pytest.raises(queries.QueryError, match="claim_windows"):
        queries.statement("claim_windows")


def test_a_statement_that_nobody_uses_fails_the_check(tmp_path: Path) -> None:
    assert run_check(tmp_path) == ""
    extra = (_SQL / "periodic.sql").read_text() + "\n-- name: forgotten_statement\n-- Unused.\nSELECT 1\n"
    assert "forgotten_statement" in run_check_again(tmp_path, periodic=extra)


def test_a_statement_that_is_missing_fails_at_start(tmp_path: Path) -> None:
    assert "claim_tick" in run_check(tmp_path, periodic="")


def test_a_name_used_twice_fails_at_start(tmp_path: Path) -> None:
    twice = (_SQL / "periodic.sql").read_text()
    assert "claim_tick is defined twice" in run_check(tmp_path, another=twice)


def run_check_again(tmp_path: Path, **files: str) -> str:
    second = tmp_path / "again"
    second.mkdir()
    return run_check(second, **files)


def test_sessions_have_time_outs_and_no_plans_that_read_a_whole_send(ledger: Ledger) -> None:
    with ledger.autocommit() as connection:
        shown = {
            name: connection.execute(f"SHOW {name}").fetchone()
            for name in ("statement_timeout", "idle_in_transaction_session_timeout", "enable_hashjoin", "TimeZone")
        }
    assert shown == {
        "statement_timeout": ("1min",),
        "idle_in_transaction_session_timeout": ("1min",),
        "enable_hashjoin": ("off",),
        "TimeZone": ("UTC",),
    }

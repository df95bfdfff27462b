"""
Each scenario notices when its guard is gone: the guard is taken out of a copy of the checkout, and the scenario fails.

    python -m tests.system.chaos.guards [--guard NAME …] [--seed SEED] [--list]

A guard is taken out by replacing one piece of text, which must stand in its file exactly once: when the code has moved
on, this says so (and tests/system/test_chaos.py does, with every change). Nothing in the product knows of this.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.processes import CHECKOUT

_PARTS = ("admin", "migrations", "shared", "tests", "workers", "Procfile", "pyproject.toml")
#: s; what never ends without its guard is not waited for longer: with it, the short form is over in a third of this
_PATIENCE_S = 60


@dataclass(frozen=True)
class Guard:
    """
    A guard, the scenarios that must fail without it, and how it is taken out.

    `without` says what happens then. `cuts` are pieces of text and what stands in their place.
    """

    name: str
    scenarios: Sequence[str]
    file: str
    without: str
    cuts: Sequence[tuple[str, str]]


def _lines(*lines: str) -> str:
    return "\n".join(lines)


_TAKEN_AS_LOST = (
    "return ambiguous(result, code=code, detail=result.error_text, timed_out=timed_out)",
    "return Transient(Scope.PROVIDER, code, result.error_text, timed_out=timed_out)",
)

GUARDS: Sequence[Guard] = (
    Guard(
        "circuit",
        ("refusals", "sixty-sends"),
        "shared/coordination/lua/guard_enter.lua",
        "an open circuit lets every call through: a provider that is down is hit by all",
        ((
            "if verdict ~= 'in' and verdict ~= 'probe' then return {verdict, wait, 0, epoch, state} end",
            "if verdict ~= 'in' and verdict ~= 'probe' then verdict = 'in' end",
        ),),
    ),
    Guard(
        "unsure is not failed",
        ("outage", "cut-lines", "everything"),
        "workers/providers/classify.py",
        "a call whose answer is lost counts as not taken, and is made again: duplicates",
        (_TAKEN_AS_LOST,),
    ),
    Guard(
        "unsure is not failed (SMTP)",
        ("cut-lines-without-look-up",),
        "workers/providers/smtp_outcomes.py",
        "a line lost after the final dot counts as not taken: duplicates",
        (("    if lost.stage is Stage.DOT:\n", "    if False:\n"),),
    ),
    Guard(
        "a dead worker's calls are unsure",
        ("kills", "killed-once", "killed-in-its-drain", "frozen"),
        "shared/ledger/sql/batches.sql",
        "what a dead or frozen worker had in a call is owed again: duplicates",
        (
            (
                _lines(
                    "    SET status = 'unsure', attempt_count = d.attempt_count + 1, prove_count = 0,",
                    "        prove_at = now() + (%(first_look_s)s::float8[])"
                    "[array_position(%(providers)s::text[], d.provider)]",
                    "                   * interval '1 second',",
                    "        settled_at = CASE WHEN array_position(%(providers)s::text[], d.provider) IS NULL"
                    " THEN now() END,",
                ),
                "    SET status = 'owed', claim_id = NULL,",
            ),
            ("RETURNING d.row_no, d.claim_id, d.epoch,", "RETURNING d.row_no, gen_random_uuid() AS claim_id, d.epoch,"),
            (
                _lines(
                    "    due_at = CASE WHEN b.owed + b.retrying > 0 THEN coalesce(due.at, now()) END,",
                    "    sending = b.sending - counted.parked, unsure = b.unsure + counted.parked,",
                ),
                "    due_at = now(), sending = b.sending - counted.parked, owed = b.owed + counted.parked,",
            ),
            (
                _lines(
                    "    settled_at = CASE WHEN b.owed + b.retrying + b.proving + counted.proving = 0"
                    " AND b.sending = counted.parked",
                    "                      THEN now() END",
                    "FROM held, due, counted",
                ),
                _lines("    settled_at = NULL", "FROM held, due, counted"),
            ),
        ),
    ),
    Guard(
        "lost messages are found",
        ("flushes",),
        "shared/recovery/starting.py",
        "a chain whose message is gone counts as waiting: its send stands still",
        (("        return {token for _, token in self.queues.existing(waiting)}",
          "        return {token for _, token in waiting}"),),
    ),
    Guard(
        "a share without Redis",
        ("redis-stopped", "redis-full", "redis-read-only"),
        "shared/coordination/guard.py",
        "nothing is sent while Redis is away",
        (("            return self._enter_alone(token, want)", '            return Held("cap", self._cap_poll_s)'),),
    ),
    Guard(
        "renewals outlive an outage of Postgres",
        ("postgres-stopped",),
        "workers/middleware/lease.py",
        "no worker that was there holds anything ever again",
        (("            except Exception as error:", "            except ZeroDivisionError as error:"),),
    ),
    Guard(
        "a claim is on disk before its call",
        ("postgres-crashes",),
        "workers/actors/chain.py",
        "a crash of Postgres undoes claims whose calls were made: duplicates",
        (
            (
                _lines(
                    "        with self.runtime.ledger.transaction() as connection:",
                    "            standing = ",
                ),
                _lines(
                    "        with self.runtime.ledger.transaction_later_durable() as connection:",
                    "            standing = ",
                ),
            ),
        ),
    ),
    Guard(
        "gate",
        ("storms",),
        "workers/actors/window.py",
        "Retry-After holds up one delivery, and all the others go on asking",
        (
            (
                "            self.sender.guards.throttle(decision.gate_s, grows_to_s=decision.gate_grows_to_s)",
                "            pass",
            ),
        ),
    ),
    Guard(
        "a second signal changes nothing",
        ("deploys",),
        "workers/middleware/drain.py",
        "the second SIGTERM ends a worker in the middle of its calls",
        (("                except IndexError:\n                    return\n",
          "                except IndexError:\n                    pass\n"),),
    ),
    Guard(
        "threads are waited for",
        ("drains", "longer-than-the-grace"),
        "workers/middleware/drain.py",
        "a worker ends with calls in flight, which somebody else has to find",
        (("within_s=self._runtime.work_ends_in_s)", "within_s=0.0)"),),
    ),
    Guard(
        "a tick is claimed",
        ("two-clocks",),
        "workers/clock.py",
        "every clock enqueues every tick",
        (("            if claimed is not None:\n", "            claimed = claimed or slot\n            if job:\n"),),
    ),
    Guard(
        "due work",
        ("no-clock",),
        "workers/clock.py",
        "nobody looks for retries whose time has come",
        (("        Periodic(JobName.DUE_WORK, settings.due_work_interval_ms / 1000),\n", ""),
         ("        Periodic(JobName.RECONCILE, settings.delivery_reconcile_interval_ms / 1000),\n", "")),
    ),
    Guard(
        "messages handed to nobody are taken back",
        ("lost-acks",),
        "shared/jobs.py",
        "what a lost answer carried counts as somebody's work for as long as that worker lives",
        (("            self.broker.do_requeue(self.queue_name, *lost)", "            pass"),),
    ),
    Guard(
        "acceptance does not need the queue",
        ("accepted-without-redis",),
        "shared/recovery/fan_out.py",
        "a send that was accepted without Redis is never fanned out",
        (("            self.jobs.ingest(stuck.send_id, message_id=stuck.send_id)", "            pass"),),
    ),
)  # fmt: skip


def take_out(guard: Guard, checkout: Path) -> None:
    """
    Remove a guard from a copy of the checkout.

    Raises: AssertionError where the text is not there exactly once.
    """
    file = checkout / guard.file
    text = file.read_text()
    for old, new in guard.cuts:
        assert text.count(old) == 1, f"{guard.name}: {guard.file} has {text.count(old)} times:\n{old}"
        text = text.replace(old, new)
    file.write_text(text)


def copy_checkout(into: Path) -> Path:
    """Give a copy of what the scenarios run."""
    for part in _PARTS:
        source = CHECKOUT / part
        if source.is_dir():
            shutil.copytree(source, into / part, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
        else:
            shutil.copy(source, into / part)
    return into


def notices(guard: Guard, scenario: str, *, seed: str) -> str | None:
    """What the scenario says without the guard; None where it passes all the same."""
    with tempfile.TemporaryDirectory(prefix="tidings-guard-") as folder:
        copy = copy_checkout(Path(folder))
        take_out(guard, copy)
        command = [sys.executable, "-m", "tests.system.chaos", "--scenario", scenario, "--seed", seed]
        command += ["--length", "short", "--patience", str(_PATIENCE_S)]
        ended = subprocess.run(command, cwd=copy, capture_output=True, text=True, errors="replace", check=False)
    if ended.returncode == 0:
        return None
    said = [line for line in ended.stdout.splitlines() if "Error" in line]
    assert said, f"{scenario} did not run:\n{ended.stderr[-3000:]}"
    return said[-1][:300]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--guard", action="append", choices=[guard.name for guard in GUARDS], help="default: all")
    parser.add_argument("--scenario", action="append", help="only these of a guard's scenarios")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--list", action="store_true", help="say what there is")
    asked = parser.parse_args()
    unnoticed = 0
    for guard in GUARDS:
        for scenario in guard.scenarios:
            if guard.name not in (asked.guard or [guard.name]) or scenario not in (asked.scenario or [scenario]):
                continue
            if asked.list:
                print(f"{guard.name} | {scenario} | {guard.without} | {guard.file}")
                continue
            said = notices(guard, scenario, seed=asked.seed)
            unnoticed += said is None
            print(f"{'NOT NOTICED' if said is None else 'noticed'} {guard.name!r} by {scenario}: {said}", flush=True)
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main())

"""The fault suite in its short form; `make chaos` runs the long one, tests/system/chaos/README.md tells more."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from admin.local.tether import Tether
from tests.support.processes import CHECKOUT
from tests.system.chaos.events import say
from tests.system.chaos.guards import GUARDS, copy_checkout, take_out
from tests.system.chaos.run import Stages, run_one
from tests.system.chaos.scenario import SCENARIOS, Size
from tests.system.chaos.verdict import as_line

#: Decides every schedule; `make chaos LENGTH=short SEED=1` plays the same ones.
_SEED = "1"
_SHORT = sorted(
    (each for each in SCENARIOS.values() if not each.nightly), key=lambda each: (each.provider, *sorted(each.settings))
)


@pytest.fixture(scope="module")
def stages(tether: Tether) -> Iterator[Stages]:
    """One fleet for all scenarios that can share it."""
    stages = Stages(tether)
    yield stages
    stages.close()


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", [each.name for each in _SHORT])
def test_nothing_is_lost_and_nothing_repeated(stages: Stages, name: str) -> None:
    found = run_one(stages, SCENARIOS[name], seed=_SEED, size=Size(full=False))
    say(f"{name} SEED={_SEED} {as_line(found)}")


def test_the_page_names_every_scenario_with_its_guard() -> None:
    page = (CHECKOUT / "tests/system/chaos/README.md").read_text()
    for guard in GUARDS:
        names = ", ".join(f"`{name}`" for name in guard.scenarios)
        assert f"| {names} | {guard.name} | {guard.without} | `{guard.file}` |" in page


def test_the_runbook_says_of_every_scenario_what_a_person_sees_and_does() -> None:
    page = (CHECKOUT / "docs/runbook.md").read_text()
    rows = re.findall(r"^\| (`[^|]*`) \| ([^|]*) \|$", page.partition("## What is tried")[2], re.MULTILINE)
    told = {name: place for names, place in rows for name in re.findall("`([a-z-]+)`", names)}
    assert set(told) == set(SCENARIOS)
    headings = set(re.findall("^## (.*)$", page, re.MULTILINE))
    assert {place for name, place in told.items() if name != "everything"} <= headings


def test_every_scenario_has_a_guard_that_can_be_taken_out(tmp_path: Path) -> None:
    assert {scenario for guard in GUARDS for scenario in guard.scenarios} == set(SCENARIOS)
    copy_checkout(tmp_path)
    originals = {guard.file: (tmp_path / guard.file).read_text() for guard in GUARDS}
    for guard in GUARDS:
        take_out(guard, tmp_path)
        (tmp_path / guard.file).write_text(originals[guard.file])

"""The walk through the rooms names only what is there."""

import re
from pkgutil import resolve_name

import pytest

from tests.support.processes import CHECKOUT

PAGE = (CHECKOUT / "docs" / "one-recipient.md").read_text(encoding="utf-8")
NAMES = sorted(set(re.findall(r"`((?:shared|workers|admin)\.[\w.]+)`", PAGE)))


@pytest.mark.parametrize("name", NAMES)
def test_every_name_of_the_walk_exists(name: str) -> None:
    assert resolve_name(name) is not None


def test_the_walk_passes_every_room() -> None:
    rooms = {name.rpartition(".")[0] for name in NAMES}
    for room in ("admin.api.accept", "workers.actors.ingest", "workers.actors.chain.Chain", "shared.ledger.deliveries"):
        assert room in rooms


def test_every_step_of_the_due_work_is_in_its_table() -> None:
    from workers.actors.due_work import DueWork

    steps = {name for name in vars(DueWork) if not name.startswith("_")} - {"run"}
    assert {f"workers.actors.due_work.DueWork.{step}" for step in steps} <= set(NAMES)


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([\w./-]+)\)", PAGE))))
def test_every_page_it_links_to_exists(link: str) -> None:
    assert (CHECKOUT / "docs" / link).exists()

from pathlib import Path

import pytest

from admin.cli.configuration_page import sections
from admin.cli.installation import generated_pages
from shared.domain import outcome
from shared.domain.states import Channel, DeliveryStatus, Mode
from shared.settings import Settings

DOCS = Path(__file__).resolve().parents[3] / "docs"


@pytest.mark.parametrize("path", sorted(generated_pages()))
def test_a_page_made_from_code_is_as_the_code_makes_it(path: str) -> None:
    written = (DOCS.parent / path).read_text(encoding="utf-8")

    assert written == generated_pages()[path], f"{path} is stale: run `make docs`"


def test_every_setting_stands_once_in_a_section_of_the_page() -> None:
    listed = [name for names in sections().values() for name in names]

    assert sorted(listed) == sorted(Settings.model_fields)


def test_every_setting_says_what_it_is_and_what_it_may_be() -> None:
    for name, field in Settings.model_fields.items():
        assert len(field.description or "") > 10, name
        if field.annotation in {int, float}:
            assert field.metadata, f"{name} has no range"
        if name.endswith("_ms"):
            assert "milliseconds" in (field.description or "") or field.default is None, name


def test_the_glossary_defines_every_outcome_and_names_what_the_books_are_made_of() -> None:
    text = (DOCS / "glossary.md").read_text(encoding="utf-8").lower()
    kinds = [kind.__name__ for kind in outcome.Outcome.__args__]
    words = ["".join(f" {letter.lower()}" if letter.isupper() else letter for letter in kind).strip() for kind in kinds]
    states = [state.value.replace("_", "-") for state in DeliveryStatus if state.value not in {"sending", "retrying"}]

    assert [word for word in [*words, *states, *Channel, *Mode] if word not in text] == []

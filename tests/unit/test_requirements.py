"""The pins that production and the tests install are those that pyproject.toml allows, and nothing else."""

import re
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

CHECKOUT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
PRODUCTION = [Requirement(line) for line in PROJECT["dependencies"]]
EXTRAS = [Requirement(line) for extra in ("embedded", "dev") for line in PROJECT["optional-dependencies"][extra]]


def pins(name: str) -> dict[str, Requirement]:
    lines = [line for line in (CHECKOUT / name).read_text().splitlines() if not line.lstrip().startswith("#")]
    return {canonicalize_name(pin.name): pin for pin in map(Requirement, filter(None, lines))}


def version_of(pin: Requirement) -> str:
    (specifier,) = pin.specifier
    assert specifier.operator == "==", pin
    return specifier.version


def needed_from(roots: list[Requirement]) -> set[str]:
    """What these requirements install here, by the metadata of what is installed."""
    names: set[str] = set()
    waiting = [(root, extra) for root in roots for extra in (*root.extras, "")]
    seen: set[tuple[str, str]] = set()
    while waiting:
        requirement, extra = waiting.pop()
        name = canonicalize_name(requirement.name)
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        names.add(name)
        for line in distribution(name).requires or []:
            further = Requirement(line)
            if further.marker is None or further.marker.evaluate({"extra": extra}):
                waiting += [(further, each) for each in (*further.extras, "")]
    return names


@pytest.mark.parametrize(
    ("file", "roots"),
    [("requirements.txt", PRODUCTION), ("requirements-dev.txt", PRODUCTION + EXTRAS)],
    ids=["production", "development"],
)
def test_the_pins_are_what_the_project_needs_and_allows(file: str, roots: list[Requirement]) -> None:
    pinned = pins(file)
    for root in roots:
        assert root.specifier.contains(version_of(pinned[canonicalize_name(root.name)])), root
    active = {name for name, pin in pinned.items() if pin.marker is None or pin.marker.evaluate()}
    assert active == needed_from(roots)


def test_production_installs_neither_embedded_servers_nor_tools() -> None:
    only_for_tests = {canonicalize_name(root.name) for root in EXTRAS} - {canonicalize_name(r.name) for r in PRODUCTION}
    assert not only_for_tests & set(pins("requirements.txt"))


def test_both_files_pin_the_same_versions() -> None:
    development = pins("requirements-dev.txt")
    assert {name: str(pin) for name, pin in pins("requirements.txt").items()}.items() <= {
        name: str(pin) for name, pin in development.items()
    }.items()


@pytest.mark.parametrize("file", ["requirements.txt", "requirements-dev.txt"])
def test_no_index_is_named(file: str) -> None:
    text = (CHECKOUT / file).read_text()
    assert not re.search(r"(?m)^\s*-|://", text)


def test_the_tests_run_on_the_pinned_versions() -> None:
    for name, pin in pins("requirements-dev.txt").items():
        if pin.marker is None or pin.marker.evaluate():
            assert distribution(name).version == version_of(pin), name


def test_the_version_for_the_platform_is_one_that_the_project_supports() -> None:
    asked = (CHECKOUT / ".python-version").read_text().strip()
    assert re.fullmatch(r"3\.\d+", asked)  # the platform's build takes the newest patch release of it
    assert Requirement(f"python{PROJECT['requires-python']}").specifier.contains(f"{asked}.0")
    assert sys.version_info >= (3, 11)

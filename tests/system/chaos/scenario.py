"""Scenarios by name: what each needs, and how they are found."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.system.chaos.stage import Stage
from tests.system.chaos.verdict import Found

Run = Callable[[Stage, "Size"], Found]


@dataclass(frozen=True)
class Size:
    """How long a scenario lasts: `full` as every night, else as with every change."""

    full: bool

    def pick(self, *, short: int, full: int) -> int:
        """One of two numbers."""
        return full if self.full else short


@dataclass(frozen=True)
class Scenario:
    """
    `provider` is "ches" or "smtp"; `settings` come on top of the short ones. Equal needs share a fleet.

    `nightly`: no part of what runs with every change.
    """

    name: str
    run: Run
    provider: str = "ches"
    settings: Mapping[str, str] = field(default_factory=dict)
    nightly: bool = False

    @property
    def needs(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        return self.provider, tuple(sorted(self.settings.items()))

    @property
    def summary(self) -> str:
        """The first line of its description."""
        return (self.run.__doc__ or "").strip().splitlines()[0]


SCENARIOS: dict[str, Scenario] = {}


def scenario(
    *, provider: str = "ches", settings: Mapping[str, str] | None = None, nightly: bool = False
) -> Callable[[Run], Run]:
    """Register a function under its own name, with dashes."""

    def register(run: Run) -> Run:
        name = getattr(run, "__name__", "").replace("_", "-")
        SCENARIOS[name] = Scenario(name, run, provider, settings or {}, nightly)
        return run

    return register

"""A run of the benchmark: its size, its servers, and what its cases came to."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tests.benchmarks.machine import say
from tests.benchmarks.stage import Servers

Line = dict[str, Any]


class InstallError(Exception):
    """A peer could not be installed; its case is skipped and says so."""


@dataclass
class Bench:
    """What a case is given; results of the same run are kept for the ratios between them."""

    servers: Servers
    runs: int
    small: bool
    cases: "Mapping[str, Callable[[Bench], Line]]"
    _results: dict[str, Line] = field(default_factory=dict)

    def size(self, full: int, small: int) -> int:
        """A number of recipients, or of anything else: `--small` shows that a case works, not what it reaches."""
        return small if self.small else full

    def result(self, case: str) -> Line:
        """The line of a case, measured in this run, now if it was not before."""
        if case not in self._results:
            say(f"{case}: begins")
            try:
                measured = self.cases[case](self)
            except InstallError as reason:
                say(f"{case}: skipped, {reason}")
                measured = {"skipped": str(reason)}
            self._results[case] = {"case": case, "small": self.small, **measured}
        return self._results[case]

    def repeat(self, case: str, run: Callable[[], Line]) -> list[Line]:
        """Do a run as often as asked, with its figures on stderr."""
        lines = []
        for number in range(1, self.runs + 1):
            lines.append(run())
            say(f"{case}: run {number} of {self.runs}: {lines[-1]}")
        return lines

    @cached_property
    def versions(self) -> dict[str, str]:
        """Of the stores."""
        return self.servers.versions


def goal(
    figure: float, *, runs: Sequence[float] = (), at_least: float | None = None, at_most: float | None = None
) -> Line:
    """A figure beside what it must reach, and what the single runs measured for it."""
    met = (at_least is None or figure >= at_least) and (at_most is None or figure <= at_most)
    bounds = {"at_least": at_least, "at_most": at_most}
    bounds = {name: bound for name, bound in bounds.items() if bound is not None}
    return {"figure": figure, **bounds, "met": met, "runs": list(runs)}

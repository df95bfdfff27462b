"""What the health rules are told: thresholds, and the sections of a snapshot read without fear of gaps. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from shared.domain.states import Channel

#: Seconds; the minutes over which failures are counted against attempts.
FAILURE_WINDOW_S = 900
#: What a provider's row may say that keeps its calls back, and whose end nobody has to hurry: no age counts meanwhile.
HOLDING_BACK = frozenset({"open", "half-open", "held", "isolated", "gate", "not configured"})


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When something is worth telling. Seconds unless the name says otherwise; each is a MONITORING_* setting."""

    nothing_moving_age_s: float = 300.0
    nothing_sent_s: float = 180.0
    failure_percent: float = 3.0
    failure_critical_percent: float = 10.0
    failure_attempts_min: int = 50
    circuit_open_s: float = 600.0
    provider_held_s: float = 3600.0
    reconcile_interval_s: float = 60.0
    reconciler_late_intervals: int = 3
    clock_late_s: float = 60.0
    dead_letters_growing: int = 20
    redis_memory_percent: float = 80.0
    snapshot_stale_s: float = 60.0
    beat_late_s: float = 15.0
    worker_hung_s: float = 600.0
    worker_idle_s: float = 120.0
    version_skew_s: float = 900.0
    clock_skew_s: float = 30.0
    queue_still_s: float = 300.0
    arriving_faster_minutes: int = 10


@dataclass(frozen=True)
class Facts:
    """
    A snapshot's document as the rules see it.

    Only sections that are `ok` speak: what is stale is said by SnapshotStale, and no other rule judges by it. A page,
    which says how old its figures are, may look at them whatever their age.
    """

    document: Mapping[str, Any]
    now: datetime
    any_age: bool = False

    def data(self, section: str) -> Mapping[str, Any]:
        """A section's data; empty where it is not fresh."""
        entry = self.document.get("sections", {}).get(section, {})
        found: Mapping[str, Any] = entry.get("data") or {}
        return found if self.any_age or entry.get("status") == "ok" else {}

    def rows(self, section: str, name: str) -> list[Mapping[str, Any]]:
        """A list of a section's data; empty where it is not fresh."""
        return list(self.data(section).get(name) or [])

    def store(self, name: str) -> Mapping[str, Any]:
        """The entry of a store: its status, since when it is away, and when it last came back."""
        found: Mapping[str, Any] = self.document.get("stores", {}).get(name, {})
        return found

    def age_s(self, moment: str | None) -> float | None:
        """Seconds since an ISO moment; None for none."""
        return None if moment is None else (self.now - datetime.fromisoformat(moment)).total_seconds()

    def providers(self) -> Iterator[Mapping[str, Any]]:
        """What Redis tells of each provider, with what the ledger does: its hold, and what it last took."""
        accounts = {(each["provider"], each["credential"]): each for each in self.rows("work", "accounts")}
        errors = self.data("work").get("errors") or {}
        for row in self.rows("providers", "providers"):
            account = accounts.get((row["provider"], row["credential"])) or {}
            hold = account.get("hold")
            yield {
                **row,
                "word": "held" if hold else row["word"],
                "since": hold["since"] if hold else row["since"],
                "hold": hold,
                "last_accepted_at": account.get("last_accepted_at"),
                "configuration_error": account.get("configuration_error"),
                "last_error": errors.get(row["provider"]),
            }

    def providers_of(self, channel: str, mode: str = "live") -> Iterator[Mapping[str, Any]]:
        """The provider rows that take a channel's messages of a mode."""
        for row in self.providers():
            if {"channel": channel, "mode": mode} in row["serves"]:
                yield row

    def paused_queues(self) -> Mapping[str, Mapping[str, Any]]:
        """Queues that an operator paused, by name."""
        return {pause["queue"]: pause for pause in self.rows("work", "pauses")}

    def may_go(self, work: Mapping[str, Any]) -> bool:
        """Whether due work is kept back by nobody on purpose: its age then counts."""
        words = [row["word"] for row in self.providers_of(work["channel"], work["mode"])]
        return work["queue"] not in self.paused_queues() and not HOLDING_BACK & set(words)

    def due(self) -> Iterator[Mapping[str, Any]]:
        """Work that is due and allowed to go, by queue and mode; rows with nothing due are left out."""
        for work in self.rows("work", "due"):
            if work["due"] and self.may_go(work):
                yield work

    def waiting_for(self, provider: Mapping[str, Any]) -> int:
        """Deliveries that are due and wait for a provider."""
        return sum(work["due"] for work in self._work_of(provider))

    def oldest_waiting_for(self, provider: Mapping[str, Any]) -> str | None:
        """Since when the oldest of them is due; an ISO moment."""
        return min((work["oldest_due_at"] for work in self._work_of(provider) if work["oldest_due_at"]), default=None)

    def _work_of(self, provider: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        for work in self.rows("work", "due"):
            if {"channel": work["channel"], "mode": work["mode"]} in provider["serves"]:
                yield work

    def last_accepted_s(self, channel: str) -> float | None:
        """Seconds since a live provider of a channel last took a message; None when none ever did."""
        ages = [self.age_s(row.get("last_accepted_at")) for row in self.providers_of(channel)]
        return min((age for age in ages if age is not None), default=None)


def channel_word(channel: str) -> str:
    """A channel at the beginning of a sentence."""
    return "E-mail" if channel == Channel.EMAIL else "SMS"


def messages_of(channel: str) -> str:
    """A channel's messages within a sentence."""
    return "e-mails" if channel == Channel.EMAIL else "SMS"


def messages_word(channels: set[str], count: int) -> str:
    """So many messages of these channels: "4,210 e-mails", "1 SMS"."""
    if channels == {Channel.EMAIL.value}:
        return f"{count:,} e-mail{'' if count == 1 else 's'}"
    if channels == {Channel.SMS.value}:
        return f"{count:,} SMS"
    return f"{count:,} message{'' if count == 1 else 's'}"


def is_are(count: int) -> str:
    """The verb that fits a count."""
    return "is" if count == 1 else "are"

"""The filter form of the Failures pages: what can be chosen, and what is. Its state is the address of the page."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from werkzeug.datastructures import MultiDict

from admin.extensions import services
from admin.monitoring.failure_filter import AGES, as_args
from admin.monitoring.failure_groups import CHANNELS, KINDS
from admin.monitoring.frame import current_snapshot
from shared.domain.requeue import FailureFilter
from shared.ledger import failures, tenants
from shared.ledger.db import POSTGRES_AWAY

#: What a person chooses in a field of its own; the rest of a filter is kept as it is.
_FIELDS = frozenset({"status", "channel", "tenant", "provider", "group", "send", "since"})
_STATUSES = {
    "": "final: failed or dead-lettered",
    "any": "any, unsure too",
    **{status: KINDS[status] for status in ("dead_lettered", "failed", "unsure")},
}
_SINCE = {"": "any time", "1h": "the last hour", "24h": "the last 24 hours", "7d": "the last 7 days"}


@dataclass(frozen=True, slots=True)
class Choice:
    """A field with its choices: values and their words; `chosen` is among them."""

    name: str
    label: str
    choices: dict[str, str]
    chosen: str


def filter_form(asked: FailureFilter, args: MultiDict[str, str], *, kept: Iterable[str] = ()) -> dict[str, Any]:
    """
    Give `{"choices": [Choice], "send": id, "hidden": [(name, value)], "is_filtered"}` for the form's template.

    `kept` are arguments of the page that are no part of the filter, and that the form hands on.
    """
    said = dict(as_args(asked))
    if args.get("since") in AGES:
        said["since"] = args["since"]
    tenant_names, cause = _from_ledger(asked)
    since = f"since {asked.since:%Y-%m-%d %H:%M} UTC" if asked.since else None
    choices = [
        _choice("status", "State", _STATUSES, said),
        _choice("channel", "Channel", CHANNELS, said),
        _choice("tenant", "Tenant", {name: name for name in tenant_names}, said),
        _choice("provider", "Provider", {name: name for name in _providers()}, said),
        _choice("group", "Cause", _causes(), said, words=cause),
        _choice("since", "Failed", _SINCE, said, words=since),
    ]
    hidden = [(name, value) for name, value in as_args(asked) if name not in _FIELDS]
    hidden += [(name, args[name]) for name in kept if args.get(name)]
    return {
        "choices": choices,
        "send": said.get("send", ""),
        "hidden": hidden,
        "is_filtered": asked != FailureFilter(),
    }


def _choice(name: str, label: str, choices: dict[str, str], said: dict[str, str], words: str | None = None) -> Choice:
    """A value that is none of the choices is one all the same, with `words`: an address says it."""
    chosen = said.get(name, "")
    offered = {"": "all", **choices}
    return Choice(name, label, offered if chosen in offered else {**offered, chosen: words or chosen}, chosen)


def _from_ledger(asked: FailureFilter) -> tuple[list[str], str | None]:
    """The tenants' names, and the title of the cause that is asked for."""
    try:
        with services().reading.transaction() as connection:
            names = sorted(tenant.name for tenant in tenants.list_tenants(connection))
            return names, failures.named(connection, asked).cause
    except POSTGRES_AWAY:
        return [], None  # the page is shown from the last snapshot


def _providers() -> list[str]:
    configured = current_snapshot().section("providers")["data"].get("providers", [])
    failing = current_snapshot().section("failures")["data"].get("by_error", {}).get("groups", [])
    return sorted({row["provider"] for row in [*configured, *failing] if row["provider"]})


def _causes() -> dict[str, str]:
    groups = current_snapshot().section("failures")["data"].get("by_error", {}).get("groups", [])
    return {group["key"]: group["title"] for group in groups}

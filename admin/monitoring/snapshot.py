"""
The snapshot: what the pages show, sampled section by section, each with a status and an age of its own.

A section that cannot be sampled keeps what was seen of it last, marked `stale`; what is older than LAST_GOOD_S is not
shown any more. One store being away costs only the sections that live in it. `snapshot_cache` says who builds, and
when.
"""

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeVar, overload

import psycopg

from admin.extensions import Services
from admin.monitoring.judging import judge
from shared.coordination.redis import RedisLink, RedisUnavailable
from shared.ledger.db import POSTGRES_AWAY, Connection
from shared.settings import Settings

_log = logging.getLogger(__name__)

T = TypeVar("T")
Store = Literal["postgres", "redis"]
STORES: tuple[Store, ...] = ("postgres", "redis")

#: Seconds for which data that can no longer be sampled are still shown, with their age.
LAST_GOOD_S = 600
#: Seconds after which no further section is begun: a document with gaps is better than one that comes too late.
_ENOUGH_S = 4.0

#: What a section's `sample` gives: plain values that JSON can hold; times as ISO strings in UTC.
Data = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sources:
    """What a section may look at. A statement has READ_TIMEOUT_MS, a question to Redis the link's own limit."""

    services: Services
    now: datetime
    _kept: dict[object, Any] = field(default_factory=dict, compare=False)

    def once(self, look: "Callable[[Sources], T]") -> T:
        """What `look` gives, looked up once in a document however many sections ask."""
        if look not in self._kept:
            self._kept[look] = look(self)
        found: T = self._kept[look]
        return found

    @property
    def settings(self) -> Settings:
        """The settings of this process."""
        return self.services.settings

    @property
    def link(self) -> RedisLink:
        """Redis; raises RedisUnavailable."""
        return self.services.link

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Lend a connection in a transaction of its own; raises POSTGRES_AWAY."""
        with self.services.reading.transaction() as connection:
            yield connection


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the document: its name, the store without which it cannot be sampled, and how it is."""

    name: str
    store: Store
    sample: Callable[[Sources], Data]


SECTIONS: dict[str, Section] = {}


def add_section(section: Section) -> None:
    """Make a section part of every snapshot; called at import by the module that owns it."""
    if section.name in SECTIONS:
        raise ValueError(f"two sections are named {section.name}")
    SECTIONS[section.name] = section


@dataclass(frozen=True)
class Snapshot:
    """
    One document, read-only. `document` is what `/admin/monitoring/queues` answers:

    {"v", "at", "stores": {store: {"status": "ok"|"away", "since", "back_at"}},
    "sections": {name: {"status": "ok"|"stale"|"unavailable", "at", "since", "data"}}, "warnings": [...], "verdict": {}}

    `at` of a section is when its data were sampled (None without data), `since` when that first failed.
    """

    document: Mapping[str, Any]
    #: Whether the fleet shares it; False while Redis is away and this process builds its own.
    shared: bool = True
    _parsed: dict[str, datetime] = field(default_factory=dict, compare=False)

    @property
    def version(self) -> int:
        """Milliseconds since 1970 at which its sampling began; grows."""
        return int(self.document["v"])

    @property
    def at(self) -> datetime:
        """When its sampling began."""
        return datetime.fromisoformat(self.document["at"])

    def section(self, name: str) -> Mapping[str, Any]:
        """A section's entry; unavailable where nobody samples it."""
        found: Mapping[str, Any] = self.document["sections"].get(name, _NOTHING)
        return found

    def is_away(self, store: Store) -> bool:
        """Whether a store could not be asked when this was built."""
        return bool(self.document["stores"][store]["status"] != "ok")

    @property
    def is_blind(self) -> bool:
        """Whether neither store could be asked: there is nothing to show."""
        return all(self.is_away(store) for store in STORES)


_NOTHING: Mapping[str, Any] = {"status": "unavailable", "at": None, "since": None, "data": {}}


class _StoreAway(Exception):  # noqa: N818  # a state of the world
    """A store cannot be asked."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.store = store


def build(services: Services, previous: Mapping[str, Any] | None) -> dict[str, Any]:
    """
    Sample every section. Takes a few seconds at most, whatever the stores do.

    `previous` is the last document, for what cannot be sampled now.
    """
    now = datetime.now(UTC)
    started = time.monotonic()
    sources = Sources(services, now)
    before = previous or {"sections": {}, "stores": {}}
    away = {store: not _answers(store, sources) for store in STORES}
    sections = {}
    for section in list(SECTIONS.values()):
        data, last = None, before["sections"].get(section.name, _NOTHING)
        if not away[section.store] and time.monotonic() - started < _ENOUGH_S:
            try:
                data = _sample(section, sources, is_new_trouble=last["since"] is None)
            except _StoreAway as lost:
                away[lost.store] = True
        sections[section.name] = _entry(data, last, now)
    stores = {store: _store_entry(away[store], before["stores"].get(store, {}), now) for store in STORES}
    document = {"v": round(now.timestamp() * 1000), "at": iso(now), "stores": stores, "sections": sections}
    warnings, verdict = judge(document, services.settings, now, before=before.get("warnings", ()))
    return {**document, "warnings": warnings, "verdict": verdict}


def _answers(store: Store, sources: Sources) -> bool:
    try:
        if store == "redis":
            sources.link.pipeline([("PING",)])
        else:
            sources.services.reading.ask()
    except (RedisUnavailable, *POSTGRES_AWAY):
        return False
    return True


def _sample(section: Section, sources: Sources, *, is_new_trouble: bool) -> Data | None:
    """Give a section's data, None where it has none; its trouble is written to the log once, not every two seconds."""
    try:
        data = section.sample(sources)
        json.dumps(data)
    except (psycopg.errors.QueryCanceled, psycopg.errors.LockNotAvailable):
        if is_new_trouble:
            _log.warning("section_too_slow", extra={"section": section.name})
        return None
    except RedisUnavailable as fault:
        raise _StoreAway("redis") from fault
    except POSTGRES_AWAY as fault:
        raise _StoreAway("postgres") from fault
    except Exception:  # noqa: BLE001  # a border: a fault in one section must not take the others from the person on call
        if is_new_trouble:
            _log.exception("section_failed", extra={"section": section.name})
        return None
    return data


def _entry(data: Data | None, before: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    if data is not None:
        return {"status": "ok", "at": iso(now), "since": None, "data": data}
    since = before["since"] or iso(now)
    if before["at"] is None or now - datetime.fromisoformat(before["at"]) > timedelta(seconds=LAST_GOOD_S):
        return {"status": "unavailable", "at": None, "since": since, "data": {}}
    return {"status": "stale", "at": before["at"], "since": since, "data": before["data"]}


def _store_entry(away: bool, before: Mapping[str, Any], now: datetime) -> dict[str, Any]:  # noqa: FBT001
    if not away:
        back_at = iso(now) if before.get("status") == "away" else before.get("back_at")
        return {"status": "ok", "since": None, "back_at": back_at}
    return {"status": "away", "since": before.get("since") or iso(now), "back_at": None}


@overload
def iso(moment: datetime) -> str: ...
@overload
def iso(moment: None) -> None: ...
@overload
def iso(moment: datetime | None) -> str | None: ...
def iso(moment: datetime | None) -> str | None:
    """A moment as sections tell it: ISO, UTC, to the millisecond; None stays None."""
    return None if moment is None else moment.astimezone(UTC).isoformat(timespec="milliseconds")

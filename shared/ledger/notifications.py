"""
Notifications: what is to be told on which channel, found once, put into one message at a time, and what became of it.

Every change is one guarded statement; a message's outcome is recorded only under the claim of its call.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from shared.domain.digest_retry import Fate, Judged
from shared.domain.digests import DIGEST_CAP, Digest, DigestStatus, Item, NotificationStatus, Severity
from shared.domain.ids import new_send_id
from shared.ledger.db import Connection
from shared.ledger.digest_channels import TakenChannel
from shared.ledger.queries import statement

_DETECT_EVENTS = statement("detect_events")
_DETECT_FINDINGS = statement("detect_findings")
_RAISE = (statement("raise_events"), statement("raise_findings"))
_NOTE_DETECTED = statement("note_detected")
_OPEN = statement("select_open_digests")
_CLAIM_AGAIN = statement("claim_digest_again")
_ITEMS = statement("select_items")
_DUE_ITEMS = statement("select_due_items")
_COUNT_DUE = statement("count_due_items")
_CLAIM = statement("claim_digest")
_PUT_ITEMS = statement("put_items_into_digest")
_HELD = statement("held_digest_claims")
_RECORD = statement("record_digest")
_RECORD_ITEMS = statement("record_items")
_RELEASE = statement("release_items")
_ADD_COUNTS = statement("add_notification_counts")
_COUNTS = statement("select_notification_counts")
_WAITING = statement("count_notifications_waiting")
_HISTORY = statement("select_notifications")
_STORY = statement("select_notification")
_DIGESTS = statement("select_digests")
_ORDER = [severity.value for severity in Severity]
#: Before every cursor.
NEWEST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Claimed:
    """A message whose call may start. `maybe_known`: an earlier call with this set may have been taken."""

    digest: Digest
    claim_id: UUID
    maybe_known: bool
    taken_over: int


@dataclass(frozen=True, slots=True)
class Told:
    """A notification in the history."""

    id: int
    channel: str
    dedup_key: str
    kind: str
    subject: str
    severity: str
    status: str
    attempt_count: int
    created_at: datetime
    next_attempt_at: datetime | None
    last_error: str | None
    sent_at: datetime | None
    final_at: datetime | None
    dispatch_batch_id: UUID | None
    finding: str | None
    tenant: str
    discarded_at: datetime | None


@dataclass(frozen=True, slots=True)
class Story:
    """
    One notification with what stands behind it.

    `finding_active` is None where there is no such finding any more, `finding_since` when it became as it is; `message`
    is the state of the message it was put into last, `reference` what that is named by elsewhere.
    """

    told: Told
    occurred_at: datetime
    details: dict[str, Any] | None
    finding_active: bool | None
    finding_since: datetime | None
    message: str | None
    reference: str | None
    operations: Sequence[UUID]


@dataclass(frozen=True, slots=True)
class SentMessage:
    """A message in the history."""

    id: UUID
    channel: str
    status: str
    items: int
    left: int
    created_at: datetime
    ended_at: datetime | None
    next_attempt_at: datetime | None
    outcome: str | None
    detail: str | None
    reference: str | None


def detect(connection: Connection, channel_id: int, *, baseline: bool = False) -> int:
    """
    Write down what a channel wants to hear and has not; how many there were.

    With `baseline` they are written down as `suppressed`: what was there before the channel is not told.
    """
    parameters = {"channel_id": channel_id, "baseline": baseline, "severities": _ORDER}
    found = connection.execute(_DETECT_EVENTS, parameters, prepare=False).rowcount
    found += connection.execute(_DETECT_FINDINGS, parameters, prepare=False).rowcount
    for raise_ in _RAISE:
        connection.execute(raise_, parameters, prepare=False)
    connection.execute(_NOTE_DETECTED, parameters)
    return found


def claim(connection: Connection, channel: TakenChannel, *, lease_s: float) -> Claimed | None:
    """
    Claim what is due on a taken channel as one message; None when nothing is, or a call of it is under way.

    A set that may have been taken goes first, unchanged and under its id. What goes into a new message is told as its
    finding or event is now, the most severe first. The caller commits, then calls.
    """
    claim_id = uuid4()
    for id_, created_at, left, taken_over, maybe_known, held, due in connection.execute(
        _OPEN, {"channel_id": channel.id}
    ).fetchall():
        if held:
            return None
        again = {"id": id_, "claim_id": claim_id, "lease_s": lease_s}
        if not due or connection.execute(_CLAIM_AGAIN, again).fetchone() is None:
            continue
        digest = Digest(id_, channel.name, created_at, _items(connection, id_), left)
        return Claimed(digest, claim_id, maybe_known, taken_over)
    ids = _due(connection, channel.id)
    if not ids:
        return None
    left = 0 if len(ids) < DIGEST_CAP else _count_due(connection, channel.id) - len(ids)
    id_ = new_send_id()
    row = connection.execute(
        _CLAIM,
        {
            "id": id_,
            "channel_id": channel.id,
            "items": len(ids),
            "left": left,
            "claim_id": claim_id,
            "lease_s": lease_s,
        },
    ).fetchone()
    connection.execute(_PUT_ITEMS, {"digest_id": id_, "ids": ids})
    assert row is not None  # noqa: S101  # an INSERT returns its row or raises
    digest = Digest(id_, channel.name, row[0], _items(connection, id_), left)
    return Claimed(digest, claim_id, maybe_known=False, taken_over=0)


def held_s(connection: Connection, claims: Sequence[Claimed]) -> dict[UUID, float]:
    """By message, for how many seconds each of these claims is still held; those that are lost are missing."""
    parameters = {"ids": [claimed.digest.id for claimed in claims], "claims": [claimed.claim_id for claimed in claims]}
    return dict(connection.execute(_HELD, parameters).fetchall())


def record(
    connection: Connection,
    claimed: Claimed,
    judged: Judged,
    *,
    outcome: str,
    error: str | None,
    reference: str | None = None,
) -> bool:
    """
    Write down what became of a message and its items, and count it; False where the claim is not ours any more.

    `error` (masked, at most 1,024 characters) is kept as the items' `last_error`.
    """
    digest = claimed.digest
    row = connection.execute(
        _RECORD,
        {
            "id": digest.id,
            "claim_id": claimed.claim_id,
            "status": judged.status.value,
            "outcome": outcome,
            "detail": error,
            "reference": reference,
            "next_attempt_at": judged.next_attempt_at,
        },
    ).fetchone()
    if row is None:
        return False
    frozen = judged.status is DigestStatus.FROZEN
    if judged.fates:
        connection.execute(
            _RECORD_ITEMS,
            {
                "digest_id": digest.id,
                "frozen": frozen,
                "error": error,
                "ids": [fate.item.id for fate in judged.fates],
                "statuses": [fate.status.value for fate in judged.fates],
                "counts": [fate.attempt_count for fate in judged.fates],
                "next": [fate.next_attempt_at for fate in judged.fates],
            },
        )
        _count(connection, digest.channel, judged.fates)
    elif not frozen:
        connection.execute(_RELEASE, {"digest_id": digest.id})
    return True


def counts(connection: Connection) -> list[tuple[str, str, str, int]]:
    """All-time counts: channel, kind, what became (`sent`, `transient`, `dead_lettered`), how many."""
    return connection.execute(_COUNTS).fetchall()


def waiting(connection: Connection) -> list[tuple[str, str, int]]:
    """What was found and is neither told nor given up: channel, kind, how many."""
    return connection.execute(_WAITING).fetchall()


def history(
    connection: Connection,
    *,
    limit: int,
    before: int = NEWEST,
    channel: str | None = None,
    kind: str | None = None,
    status: NotificationStatus | None = None,
    tenant: str | None = None,
    batch: UUID | None = None,
    finding: str | None = None,
) -> list[Told]:
    """Notifications, newest first, those before an id; of a `batch` those that are in that message."""
    parameters = {
        "channel": channel,
        "kind": kind,
        "status": status,
        "tenant": tenant,
        "batch": batch,
        "finding": finding,
        "before": before,
        "limit": limit,
    }
    return [Told(*row) for row in connection.execute(_HISTORY, parameters, prepare=False)]


def find(connection: Connection, id_: int) -> Story | None:
    """One notification, None when there is none of this id."""
    row = connection.execute(_STORY, {"id": id_}).fetchone()
    return None if row is None else Story(Told(*row[:17]), *row[17:])


def messages(connection: Connection, *, limit: int, channel: str | None = None) -> list[SentMessage]:
    """Messages, newest first."""
    return [SentMessage(*row) for row in connection.execute(_DIGESTS, {"channel": channel, "limit": limit})]


def _due(connection: Connection, channel_id: int) -> list[int]:
    parameters = {"channel_id": channel_id, "severities": _ORDER, "limit": DIGEST_CAP}
    return [row[0] for row in connection.execute(_DUE_ITEMS, parameters, prepare=False)]


def _count_due(connection: Connection, channel_id: int) -> int:
    row = connection.execute(_COUNT_DUE, {"channel_id": channel_id}).fetchone()
    return 0 if row is None else row[0]


def _count(connection: Connection, channel: str, fates: Sequence[Fate]) -> None:
    words = {NotificationStatus.RETRYING: "transient"}
    counted = Counter((fate.item.kind, words.get(fate.status, fate.status.value)) for fate in fates)
    connection.execute(
        _ADD_COUNTS,
        {
            "channel": channel,
            "kinds": [kind for kind, _ in counted],
            "became": [became for _, became in counted],
            "counts": list(counted.values()),
        },
    )


def _items(connection: Connection, digest_id: UUID) -> list[Item]:
    rows = connection.execute(_ITEMS, {"id": digest_id})
    return [Item(*row[:4], Severity(row[4]), *row[5:]) for row in rows]  # type: ignore[call-arg]  # a row has its columns

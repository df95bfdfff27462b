"""What happened to a send beside its own course: what was recovered of it, and which workers left it while draining."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from shared.domain.states import SendEventKind
from shared.ledger.db import Connection
from shared.ledger.queries import statement

_INSERT = statement("insert_send_event")
_INSERT_ALL = statement("insert_send_events")
_SELECT = statement("select_send_events")
_REMOVE = statement("remove_send_events")


@dataclass(frozen=True, slots=True)
class SendEvents:
    """Events of one kind, worker and minute; `deliveries` are those they were about, None where that is not known."""

    at: datetime
    kind: SendEventKind
    worker: str | None
    batches: Sequence[int]
    count: int
    deliveries: int | None


def note(
    connection: Connection,
    send_id: UUID,
    kind: SendEventKind,
    *,
    batch_no: int | None = None,
    deliveries: int | None = None,
    worker: str | None = None,
) -> None:
    """Write an event down; `worker` is the name of the one that did it, where that says something."""
    parameters = {"send_id": send_id, "kind": kind.value, "batch_no": batch_no, "deliveries": deliveries}
    connection.execute(_INSERT, {**parameters, "worker": worker})


def note_all(connection: Connection, send_ids: Sequence[UUID], kind: SendEventKind) -> None:
    """Write the same down for many sends."""
    if send_ids:
        connection.execute(_INSERT_ALL, {"send_ids": list(send_ids), "kind": kind.value})


def newest(connection: Connection, send_id: UUID, *, limit: int) -> list[SendEvents]:
    """The newest of a send."""
    rows = connection.execute(_SELECT, {"send_id": send_id, "limit": limit})
    return [SendEvents(row[0], SendEventKind(row[1]), row[2], row[3] or (), *row[4:]) for row in rows]


def remove(connection: Connection, send_id: UUID) -> None:
    """Remove a send's."""
    connection.execute(_REMOVE, {"send_id": send_id})

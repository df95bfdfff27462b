"""Queues paused by an operator: workers leave them alone, nothing is lost, and nothing of it counts as stuck."""

from dataclasses import dataclass
from datetime import datetime

from shared.domain.masking import mask_text
from shared.ledger import audit
from shared.ledger.db import Connection
from shared.ledger.queries import statement

_SELECT = statement("select_queue_pauses")
_PAUSE = statement("pause_queue")
_RESUME = statement("resume_queue")


@dataclass(frozen=True, slots=True)
class Pause:
    """Who paused a queue, why, and since when (aware UTC)."""

    queue: str
    operator: str
    reason: str
    since: datetime


def paused(connection: Connection) -> dict[str, Pause]:
    """The paused queues, by name."""
    return {row[0]: Pause(*row) for row in connection.execute(_SELECT)}


def pause(connection: Connection, queue: str, *, operator: str, reason: str) -> bool:
    """Pause a queue until `resume`, audited; False where it was paused already. Addresses in the reason are masked."""
    reason = mask_text(reason)
    done = connection.execute(_PAUSE, {"queue": queue, "operator": operator, "reason": reason}).fetchone() is not None
    result = "paused" if done else "was paused already"
    target = audit.queue_target(queue)
    audit.record(connection, operator=operator, action="pause queue", target=target, reason=reason, result=result)
    return done


def resume(connection: Connection, queue: str, *, operator: str, reason: str | None = None) -> bool:
    """End a pause, audited; False where there was none."""
    done = connection.execute(_RESUME, {"queue": queue}).fetchone() is not None
    result = "resumed" if done else "was not paused"
    target = audit.queue_target(queue)
    audit.record(connection, operator=operator, action="resume queue", target=target, reason=reason, result=result)
    return done

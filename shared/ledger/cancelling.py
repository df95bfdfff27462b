"""
A person cancels what remains of a send: it stops at once, and for ten seconds that can be undone.

Until then it is a pause: nothing of it is called, and nothing is lost. Afterwards due work cancels it for good.
"""

from uuid import UUID

from shared.domain.masking import mask_text
from shared.domain.states import SendStatus
from shared.ledger import audit, send_page
from shared.ledger.db import Connection
from shared.ledger.operations import UNDO_S
from shared.ledger.queries import statement

_BEGIN = statement("begin_cancel")
_UNDO = statement("undo_cancel")
_IS_ASKED = statement("is_being_cancelled")
_FINISH = statement("finish_cancels")


def begin(connection: Connection, send_id: UUID, *, operator: str, reason: str) -> bool:
    """
    Stop a send, to cancel it in UNDO_S seconds; False when it is over, or being cancelled already.

    Addresses in the reason are masked.
    """
    parameters = {"send_id": send_id, "operator": operator, "reason": mask_text(reason)}
    return connection.execute(_BEGIN, parameters).fetchone() is not None


def undo(connection: Connection, send_id: UUID) -> SendStatus | None:
    """Let it be as it was before; what it is now, None when it is not being cancelled (any more)."""
    row = connection.execute(_UNDO, {"send_id": send_id}).fetchone()
    return None if row is None else SendStatus(row[0])


def is_asked(connection: Connection, send_id: UUID) -> bool:
    """Whether it is to be cancelled, and that can still be undone."""
    return connection.execute(_IS_ASKED, {"send_id": send_id}).fetchone() is not None


def finish(connection: Connection, *, limit: int, undo_s: float = UNDO_S) -> list[UUID]:
    """Cancel those whose time to undo it is over, inside a transaction; in the audit for whoever asked for it."""
    rows = connection.execute(_FINISH, {"undo_s": undo_s, "limit": limit}).fetchall()
    for send_id, operator in rows:
        send = send_page.find(connection, send_id)
        audit.record(
            connection,
            operator=operator,
            action="cancel send done",
            target=send_page.target(send_id),
            count=send.remaining if send else None,
            result="cancelled",
        )
    return [send_id for send_id, _ in rows]

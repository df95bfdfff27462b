"""Audit entries of sign-ins that the ledger could not take: kept in this process and written once it answers."""

from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime

from shared.coordination.periodic import Periodic
from shared.domain.roles import Role
from shared.ledger import audit
from shared.ledger.db import POSTGRES_AWAY, Connection, Ledger

#: Seconds between two tries.
_AGAIN_S = 2.0


@dataclass(frozen=True, slots=True)
class SignInNote:
    """What the audit is to know of a sign-in; `account` is the person's own mark at the sign-in provider, if any."""

    operator: str
    result: str
    reason: str
    role: Role | None
    account: str | None
    request_id: str | None

    def write(self, connection: Connection, *, late: str = "") -> None:
        """Write it in the caller's transaction; `late` says since when it waits."""
        with audit.caused_by(role=self.role, request_id=self.request_id):
            audit.record(
                connection,
                operator=self.operator,
                action="sign in",
                target="pages",
                result=self.result,
                reason=f"{self.reason}{late}",
                account=self.account,
            )


class OwedNotes:
    """
    What is to be written, oldest first.

    One whose commit was not heard of is written twice. A process that is killed loses them: its log has them too.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._owed: deque[tuple[datetime, SignInNote]] = deque()
        self._periodic = Periodic("sign-ins to note", _AGAIN_S, self.write)

    def add(self, note: SignInNote) -> None:
        """Keep one until the ledger takes it."""
        self._owed.append((datetime.now(UTC), note))
        self._periodic.start()

    def write(self) -> None:
        """Write what there is, as far as the ledger takes it now."""
        while self._owed:
            at, note = self._owed[0]
            try:
                with self._ledger.transaction() as connection:
                    note.write(connection, late=f", at {at:%Y-%m-%d %H:%M:%S} UTC while the ledger was away")
            except POSTGRES_AWAY:
                return
            self._owed.popleft()

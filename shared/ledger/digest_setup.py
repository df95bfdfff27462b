"""What people do to digest channels and dead letters, each written into the audit; the same for command and page."""

from collections.abc import Sequence
from uuid import UUID, uuid4

from shared.domain.digest_channels import ChannelError, Setup, check_name
from shared.domain.digests import ChannelType
from shared.ledger import audit, digest_channels, digest_runs, notifications
from shared.ledger.db import Connection
from shared.ledger.digest_channels import DigestChannel, Wishes


def add(
    connection: Connection,
    *,
    tenant_id: int,
    name: str,
    type_: ChannelType,
    setup: Setup,
    wishes: Wishes,
    tell_existing: bool,
    operator: str,
) -> int:
    """
    Set a channel up; how much it takes for known. Unless it is to `tell_existing`, what is there now is not told.

    Raises: ChannelError for a name that is taken or no name.
    """
    check_name(name)
    channel_id = digest_channels.create(
        connection,
        tenant_id=tenant_id,
        name=name,
        type_=type_,
        setup=setup,
        wishes=wishes,
        tells_existing=tell_existing,
    )
    if channel_id is None:
        raise ChannelError({"name": f"{name} is taken"})
    known = 0 if tell_existing else notifications.detect(connection, channel_id, baseline=True)
    _note(connection, "add channel", name, operator, f"{type_.value}, {known} known", detail=setup.config)
    return known


def change(connection: Connection, channel: DigestChannel, *, setup: Setup, wishes: Wishes, operator: str) -> None:
    """Change a channel; what came before the change is found by its filter as it was."""
    notifications.detect(connection, channel.id)
    digest_channels.update(connection, channel.id, setup=setup, wishes=wishes)
    said = ", ".join([*setup.config, *(f"new {name}" for name in setup.secret)]) or "filter or settings"
    _note(connection, "edit channel", channel.name, operator, said)


def switch(
    connection: Connection, channel: DigestChannel, *, on: bool, operator: str, reason: str | None = None
) -> bool:
    """Switch a channel on or off; False where it was so already."""
    if not digest_channels.enable(connection, channel.id, enabled=on):
        return False
    _note(connection, "enable channel" if on else "disable channel", channel.name, operator, "done", reason=reason)
    return True


def remove(connection: Connection, channel: DigestChannel, *, operator: str) -> None:
    """Remove a channel with its history."""
    digest_channels.remove(connection, channel.id)
    _note(connection, "remove channel", channel.name, operator, "removed", count=channel.waiting)


def requeue(
    connection: Connection,
    channel: DigestChannel,
    *,
    ids: Sequence[int] | None,
    reason: str | None,
    operator: str,
) -> int:
    """Have dead letters of a channel told again, those named or all; how many."""
    again = notifications.requeue(connection, channel.id, ids=ids)
    if again:
        _note(connection, "requeue notifications", channel.name, operator, "planned", count=len(again), reason=reason)
    return len(again)


def ask_run(connection: Connection, *, operator: str, channel: DigestChannel | None = None) -> UUID:
    """Write down that a dispatch, or a test of a channel, is wanted; the caller enqueues it after the commit."""
    run_id = uuid4()
    digest_runs.ask(connection, run_id, asked_by=operator, channel_id=channel.id if channel else None)
    audit.record(
        connection,
        operator=operator,
        action="test channel" if channel else "run digests",
        target=f"digest channel {channel.name}" if channel else "all digest channels",
        result=f"asked as run {run_id}",
    )
    return run_id


def _note(
    connection: Connection,
    action: str,
    name: str,
    operator: str,
    result: str,
    *,
    count: int | None = None,
    reason: str | None = None,
    detail: dict[str, object] | None = None,
) -> None:
    shown = {key: value for key, value in (detail or {}).items() if key not in {"to", "from"}}
    audit.record(
        connection,
        operator=operator,
        action=action,
        target=f"digest channel {name}",
        result=result,
        count=count,
        reason=reason,
        detail=shown or None,
    )

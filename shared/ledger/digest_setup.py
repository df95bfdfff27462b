"""What people do to digest channels, each written into the audit; the same for command and page."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any
from uuid import UUID, uuid4

from shared.domain.digest_channels import (
    SECRETS,
    ChannelError,
    Setup,
    check_name,
    read_filter,
    read_own_settings,
    read_setup,
)
from shared.domain.digests import ChannelType, Severity
from shared.ledger import audit, digest_channels, digest_runs, events, notifications
from shared.ledger.db import Connection
from shared.ledger.digest_channels import DigestChannel, Wishes

#: Fields of what a channel is; the others are of what it hears and how it is treated.
_WHAT_IT_IS = (*SECRETS, "to", "from")


def read(
    type_: ChannelType,
    given: Mapping[str, Any],
    *,
    plain_http: Collection[str],
    private: Collection[str],
    name: str | None = None,
    partial: bool = False,
    unset: Collection[str] = (),
) -> tuple[Setup, Wishes]:
    """
    Check all that a person gave for a channel, by field; with a `name` that, too. `partial`: what it is stays as it was
    where nothing is given, its filter and settings do not. `unset`: what of what it is it is to have no more.

    Raises: ChannelError with every fault.
    """
    faults: dict[str, str] = {}
    with _noting(faults):
        if name is not None:
            check_name(name)
    with _noting(faults):
        what = {field: given.get(field) for field in _WHAT_IT_IS if given.get(field)}
        setup = read_setup(type_, what, plain_http=plain_http, private=private, partial=partial, unset=unset)
    with _noting(faults):
        kinds, min_severity = read_filter(given.get("kinds") or (), given.get("min_severity") or Severity.INFO)
    with _noting(faults):
        own = read_own_settings(given)
    if faults:
        raise ChannelError(faults)
    wishes = Wishes(
        kinds=kinds,
        min_severity=min_severity,
        retry_base_delay_ms=own["retry_base_delay_ms"],
        max_delivery_attempts=own["max_attempts"],
        retention_days=own["retention_days"],
    )
    return setup, wishes


@contextmanager
def _noting(faults: dict[str, str]) -> Iterator[None]:
    try:
        yield
    except ChannelError as error:
        faults.update(error.faults)


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

    Raises: ChannelError for a name that is taken.
    """
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
        # Perhaps by the first of two clicks, whose answer alone had the secret that was made.
        unseen = "; where its signing secret was not seen, edit the channel and give it another"
        raise ChannelError({"name": f"{name} is taken{unseen if type_ is ChannelType.WEBHOOK else ''}"})
    known = 0 if tell_existing else notifications.detect(connection, channel_id, baseline=True)
    _note(connection, "add channel", name, operator, f"{type_.value}, {known} known", detail=setup.config)
    return known


def change(
    connection: Connection,
    channel: DigestChannel,
    *,
    setup: Setup,
    wishes: Wishes,
    operator: str,
    tell_existing: bool = False,
) -> int:
    """
    Change a channel, inside a transaction; how much it takes for known.

    What came before the change is found by its filter as it was. Findings that are so and that a wider filter lets in
    are known from then on, as with a new channel, unless it is to `tell_existing`.
    """
    digest_channels.lock(connection, channel.id)  # first, as dispatch does
    events.wait_for_events(connection, channel.tenant_id)
    events.lock_findings(connection, channel.tenant_id)  # what comes between the two looks would be known and untold
    notifications.detect(connection, channel.id)
    digest_channels.update(connection, channel.id, setup=setup, wishes=wishes)
    is_as_it_was = (wishes.kinds, wishes.min_severity) == (channel.kinds, channel.min_severity)
    known = 0 if is_as_it_was or tell_existing else notifications.detect(connection, channel.id, baseline=True)
    changed = {name: value for name, value in asdict(wishes).items() if value != getattr(channel, name)}
    secrets = [*(f"new {name}" for name in setup.secret), *(f"no {name}" for name in setup.removed)]
    said = ", ".join([*setup.config, *secrets, *changed, *([f"{known} known"] if known else [])]) or "nothing new"
    _note(connection, "edit channel", channel.name, operator, said, detail={**setup.config, **changed})
    return known


def switch(
    connection: Connection, channel: DigestChannel, *, on: bool, operator: str, reason: str | None = None
) -> bool:
    """Switch a channel on or off; False where it was so already."""
    if not digest_channels.enable(connection, channel.id, enabled=on):
        return False
    _note(connection, "enable channel" if on else "disable channel", channel.name, operator, "done", reason=reason)
    return True


def remove(connection: Connection, channel: DigestChannel, *, operator: str, reason: str | None = None) -> bool:
    """Remove a channel with its history, inside a transaction; False where somebody else did."""
    lost = digest_channels.losses(connection, channel.id)
    if not digest_channels.remove(connection, channel.id):
        return False
    said = f"removed with {lost.notifications:,} notifications and {lost.messages:,} messages"
    _note(connection, "remove channel", channel.name, operator, said, count=lost.waiting, reason=reason)
    return True


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

"""Digest channels: set up and changed by people, taken by dispatch. Secrets leave this module only with `take`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from shared.domain.digest_channels import Setup
from shared.domain.digests import ChannelType, Severity
from shared.domain.masking import mask_email
from shared.ledger.db import Connection
from shared.ledger.queries import statement

_INSERT = statement("insert_digest_channel")
_PUT_SECRET = statement("put_digest_channel_secret")
_UPDATE = statement("update_digest_channel")
_ENABLE = statement("enable_digest_channel")
_LOCK = statement("lock_digest_channel")
_LOSSES = statement("count_channel_losses")
_REMOVE_NOTIFICATIONS = statement("remove_notifications_of_channel")
_REMOVE_DIGESTS = statement("remove_digests_of_channel")
_REMOVE = statement("remove_digest_channel")
_SELECT = statement("select_digest_channels")
_ENABLED = statement("enabled_digest_channels")
_TAKE = statement("take_digest_channel")
_LOOK_AGAIN = statement("look_again_at_digest_channels")
_SENT = statement("note_channel_sent")
_HURRY_ITEMS = statement("hurry_items")
_HURRY_DIGESTS = statement("hurry_digests")
_WAITS = statement("note_channel_waits")
_REFUSED = statement("note_channel_refused")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What a channel wants to hear and how it is treated; None where the installation's setting holds."""

    kinds: list[str] | None = None
    min_severity: Severity = Severity.INFO
    retry_base_delay_ms: int | None = None
    max_delivery_attempts: int | None = None
    retention_days: int | None = None


@dataclass(frozen=True, slots=True)
class DigestChannel:
    """
    A channel as people see it, without its secrets.

    `waiting` counts what was found and is neither told nor given up, `retrying` those of them in backoff; `next_at`
    is the earliest moment one may be told. `not_configured` says why the endpoint refuses us. `dead_since`: when the
    first of its dead letters was given up. `waits`: no call before `wait_until`. `failing_since`: when the first
    message was not taken after the last that was, also while it is repeated; None where that was the last.
    """

    id: int
    tenant_id: int
    tenant: str
    name: str
    type: str
    config: dict[str, Any]
    kinds: list[str] | None
    min_severity: str
    tells_existing: bool
    enabled: bool
    retry_base_delay_ms: int | None
    max_delivery_attempts: int | None
    retention_days: int | None
    created_at: datetime
    last_sent_at: datetime | None
    wait_until: datetime | None
    not_configured: str | None
    not_configured_at: datetime | None
    waiting: int
    retrying: int
    next_at: datetime | None
    dead_lettered: int
    dead_since: datetime | None
    waits: bool
    failing_since: datetime | None

    @property
    def backs_off(self) -> bool:
        """Whether something waits on an endpoint that did not take the last message, or told us to wait."""
        return self.waiting > 0 and (self.waits or self.failing_since is not None)

    @property
    def target(self) -> str:
        """Where it tells: the endpoint without what may be a secret of it, or masked addresses."""
        endpoint = self.config.get("endpoint")
        return str(endpoint) if endpoint else ", ".join(map(mask_email, self.config.get("to", [])))


@dataclass(frozen=True, slots=True)
class Losses:
    """What goes with a channel: `waiting` of its notifications are not told yet, `dead_lettered` were given up."""

    notifications: int
    waiting: int
    dead_lettered: int
    messages: int


@dataclass(frozen=True, slots=True)
class TakenChannel:
    """
    A channel taken for one step of dispatch, locked until the transaction ends; `now` is the ledger's clock.

    `setup_version` says of which set-up an answer to its call is.
    """

    id: int
    tenant_id: int
    name: str
    type: ChannelType
    config: dict[str, Any]
    secret: dict[str, str] = field(repr=False)
    retry_base_delay_ms: int | None
    max_delivery_attempts: int | None
    baselined: bool
    tells_existing: bool
    waits: bool
    setup_version: int
    email_from: str | None
    now: datetime


def create(
    connection: Connection,
    *,
    tenant_id: int,
    name: str,
    type_: ChannelType,
    setup: Setup,
    wishes: Wishes,
    tells_existing: bool,
) -> int | None:
    """Set a channel up; its id, None where the name is taken. Its baseline is the caller's to take."""
    row = connection.execute(
        _INSERT,
        {
            "tenant_id": tenant_id,
            "name": name,
            "type": type_.value,
            "config": Jsonb(setup.config),
            "tells_existing": tells_existing,
            **_as_parameters(wishes),
        },
    ).fetchone()
    if row is None:
        return None
    connection.execute(_PUT_SECRET, {"channel_id": row[0], "secret": Jsonb(setup.secret), "removed": []})
    return int(row[0])


def update(connection: Connection, channel_id: int, *, setup: Setup, wishes: Wishes) -> None:
    """Change a channel: `setup` holds what is new of it, `wishes` all of them."""
    removed = list(setup.removed)
    parameters = {"id": channel_id, "config": Jsonb(setup.config), "removed": removed, **_as_parameters(wishes)}
    connection.execute(_UPDATE, parameters)
    if setup.secret or removed:
        secret = Jsonb(setup.secret)
        connection.execute(_PUT_SECRET, {"channel_id": channel_id, "secret": secret, "removed": removed})


def lock(connection: Connection, channel_id: int) -> None:
    """Have dispatch leave a channel alone until the transaction ends; before anything else that is done to it."""
    connection.execute(_LOCK, {"id": channel_id})


def enable(connection: Connection, channel_id: int, *, enabled: bool) -> bool:
    """Switch a channel on or off; False where it was so already."""
    return connection.execute(_ENABLE, {"id": channel_id, "enabled": enabled}).fetchone() is not None


def losses(connection: Connection, channel_id: int, *, most: int | None = None) -> Losses:
    """What a removal of a channel would take with it; each number up to `most`, which then says so many or more."""
    row = connection.execute(_LOSSES, {"id": channel_id, "most": most}).fetchone()
    assert row is not None  # noqa: S101  # a SELECT of counts has one row
    return Losses(*row)


def remove(connection: Connection, channel_id: int, *, chunk: int = 10_000) -> bool:
    """Remove a channel with all that was told on it, inside a transaction; False where it is gone already."""
    lock(connection, channel_id)
    while connection.execute(_REMOVE_NOTIFICATIONS, {"id": channel_id, "limit": chunk}).rowcount:
        pass
    connection.execute(_REMOVE_DIGESTS, {"id": channel_id})
    return connection.execute(_REMOVE, {"id": channel_id}).fetchone() is not None


def find(connection: Connection, name: str) -> DigestChannel | None:
    """The channel of a name."""
    row = connection.execute(_SELECT, {"name": name}).fetchone()
    return None if row is None else DigestChannel(*row)


def every(connection: Connection) -> list[DigestChannel]:
    """All channels by name."""
    return [DigestChannel(*row) for row in connection.execute(_SELECT, {"name": None})]


def enabled(connection: Connection) -> Sequence[int]:
    """The channels that dispatch looks at, those longest without a message first."""
    return [row[0] for row in connection.execute(_ENABLED)]


def take(connection: Connection, channel_id: int, *, even_disabled: bool = False) -> TakenChannel | None:
    """Take a channel for one step, inside a transaction; None where it is disabled, gone or another's."""
    row = connection.execute(_TAKE, {"id": channel_id, "even_disabled": even_disabled}).fetchone()
    return None if row is None else TakenChannel(*row[:3], ChannelType(row[3]), *row[4:])  # type: ignore[call-arg]  # a row has its columns


def look_again(connection: Connection) -> None:
    """Look at channels that refused us with the next dispatch, whenever it is."""
    connection.execute(_LOOK_AGAIN)


def note_sent(connection: Connection, channel_id: int, *, told: bool = True) -> None:
    """
    It took a message: a digest, or a test (not `told`). Its backoff is over: what waits for it is due.

    To be called in a transaction, after what the message told is recorded.
    """
    connection.execute(_SENT, {"id": channel_id, "told": told})
    connection.execute(_HURRY_ITEMS, {"id": channel_id})
    connection.execute(_HURRY_DIGESTS, {"id": channel_id})


def note_waits(connection: Connection, channel: TakenChannel, *, seconds: float) -> bool:
    """It told us to slow down; False where it is set up anew since it was taken."""
    asked = {"id": channel.id, "setup_version": channel.setup_version, "seconds": seconds}
    return connection.execute(_WAITS, asked).fetchone() is not None


def note_refused(connection: Connection, channel: TakenChannel, *, reason: str, recheck_s: float) -> bool | None:
    """It refused us as we are set up; whether that is news, None where it is set up anew since it was taken."""
    asked = {"id": channel.id, "setup_version": channel.setup_version, "reason": reason, "recheck_s": recheck_s}
    row = connection.execute(_REFUSED, asked).fetchone()
    return None if row is None else bool(row[0])


def _as_parameters(wishes: Wishes) -> dict[str, Any]:
    return {
        "kinds": wishes.kinds,
        "min_severity": wishes.min_severity.value,
        "retry_base_delay_ms": wishes.retry_base_delay_ms,
        "max_delivery_attempts": wishes.max_delivery_attempts,
        "retention_days": wishes.retention_days,
    }

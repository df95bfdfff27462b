"""
The ledger's tables, for Alembic and for the admin's reads; every change of state is a named query in `sql/`.

Two rules of shape (ADR-0003): `batch` is the small table that work is found in; `delivery`, the big one,
carries no index and no foreign key whose columns change, so that its updates stay HOT (fillfactor 70).
"""

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    DateTime,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Text,
    UniqueConstraint,
    Uuid,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from shared.domain.digests import ChannelType, DigestStatus, NotificationStatus, Severity
from shared.domain.states import Channel, DeliveryStatus, Lane, Mode, SendStatus


def _one_of(column: str, values: type[StrEnum]) -> str:
    return f"{column} IN ({', '.join(repr(str(value.value)) for value in values)})"


class Base(DeclarativeBase):
    """Naming convention and types shared by all tables."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012  # SQLAlchemy reads it from the class
        str: Text,
        datetime: DateTime(timezone=True),
        dict[str, Any]: JSONB,
        UUID: Uuid,
        bytes: LargeBinary,
    }


_NOW = func.now()


class Tenant(Base):
    """An application that hands in sends."""

    __tablename__ = "tenant"
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    default_region: Mapped[str | None]
    email_from: Mapped[str | None]
    sms_from: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(server_default=_NOW)

    __table_args__ = (CheckConstraint("default_region ~ '^[A-Z]{2}$'", name="region"),)


class ApiKey(Base):
    """A key of a tenant; only its hash is kept. `tenant_id` is empty for a load-test credential not yet bound."""

    __tablename__ = "api_key"
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    tenant_id: Mapped[int | None] = mapped_column(ForeignKey("tenant.id"))
    name: Mapped[str]
    mode: Mapped[str]
    prefix: Mapped[str]
    hash: Mapped[bytes] = mapped_column(unique=True)
    created_at: Mapped[datetime] = mapped_column(server_default=_NOW)
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]

    __table_args__ = (CheckConstraint(_one_of("mode", Mode), name="mode"), Index(None, "tenant_id"))


class Send(Base):
    """One submission. `content` holds the templates per channel, `accepted` the count per channel."""

    __tablename__ = "send"
    id: Mapped[UUID] = mapped_column(primary_key=True)
    tenant_id: Mapped[int] = mapped_column(ForeignKey("tenant.id"))
    api_key_id: Mapped[int] = mapped_column(ForeignKey("api_key.id"))
    mode: Mapped[str]
    lane: Mapped[str]
    status: Mapped[str]
    name: Mapped[str | None]
    content: Mapped[dict[str, Any]]
    params: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))
    accepted: Mapped[dict[str, Any]]
    duplicates: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))
    segments: Mapped[int | None]
    send_at: Mapped[datetime | None]
    valid_until: Mapped[datetime | None]
    created_at: Mapped[datetime] = mapped_column(server_default=_NOW)
    queued_at: Mapped[datetime | None]
    started_at: Mapped[datetime | None]
    completed_at: Mapped[datetime | None]
    cancelled_at: Mapped[datetime | None]
    paused_at: Mapped[datetime | None]
    pause_reason: Mapped[str | None]
    #: The operator who paused it; tenants are told why and not who. Empty where the tenant or the machine did.
    paused_by: Mapped[str | None]
    resumed_at: Mapped[datetime | None]
    #: A person cancelled it: paused since then or before, it is cancelled for good when that cannot be undone any more.
    cancel_asked_at: Mapped[datetime | None]
    cancel_asked_by: Mapped[str | None]
    settled_counts: Mapped[dict[str, Any] | None]
    #: When retention began to remove its batches, deliveries and attempts, and when the last of them was gone.
    forgotten_at: Mapped[datetime | None]
    emptied_at: Mapped[datetime | None]

    __table_args__ = (
        CheckConstraint(_one_of("status", SendStatus), name="status"),
        CheckConstraint(_one_of("mode", Mode), name="mode"),
        CheckConstraint(_one_of("lane", Lane), name="lane"),
        CheckConstraint("(status = 'completed') = (completed_at IS NOT NULL)", name="completed_at"),
        CheckConstraint("(status = 'cancelled') = (cancelled_at IS NOT NULL)", name="cancelled_at"),
        CheckConstraint("(status = 'paused') = (paused_at IS NOT NULL)", name="paused_at"),
        CheckConstraint("status <> 'scheduled' OR send_at IS NOT NULL", name="scheduled"),
        CheckConstraint("status NOT IN ('sending', 'completed') OR started_at IS NOT NULL", name="started_at"),
        Index("ix_send_tenant", "tenant_id", text("id DESC")),
        Index("ix_send_tenant_status", "tenant_id", "status", text("id DESC")),
        Index(
            "ix_send_active",
            "id",
            postgresql_where=text("status IN ('pending', 'queued', 'scheduled', 'sending', 'paused')"),
        ),
        Index("ix_send_cancelling", "id", postgresql_where=text("status = 'cancelled' AND settled_counts IS NULL")),
        Index(
            "ix_send_kept",
            text("coalesce(completed_at, cancelled_at)"),
            postgresql_where=text("settled_counts IS NOT NULL AND emptied_at IS NULL"),
        ),
    )


class Batch(Base):
    """
    A fixed slice of one channel of a send: the unit of lease and progress.

    `due_at` is the earliest moment one of its rows may be claimed, empty when none is owed or retrying.
    The counts sum to last_row − first_row + 1 at every commit.
    """

    __tablename__ = "batch"
    send_id: Mapped[UUID] = mapped_column(ForeignKey("send.id"), primary_key=True)
    batch_no: Mapped[int] = mapped_column(Integer, primary_key=True)
    channel: Mapped[str]
    first_row: Mapped[int]
    last_row: Mapped[int]
    due_at: Mapped[datetime | None]
    holder: Mapped[UUID | None]
    chain_no: Mapped[int | None] = mapped_column(SmallInteger)
    leased_at: Mapped[datetime | None]
    progress_at: Mapped[datetime | None]
    settled_at: Mapped[datetime | None]
    recovery_count: Mapped[int] = mapped_column(SmallInteger, server_default=text("0"))
    owed: Mapped[int]
    sending: Mapped[int] = mapped_column(server_default=text("0"))
    retrying: Mapped[int] = mapped_column(server_default=text("0"))
    sent: Mapped[int] = mapped_column(server_default=text("0"))
    failed: Mapped[int] = mapped_column(server_default=text("0"))
    dead_lettered: Mapped[int] = mapped_column(server_default=text("0"))
    unsure: Mapped[int] = mapped_column(server_default=text("0"))
    suppressed: Mapped[int] = mapped_column(server_default=text("0"))
    cancelled: Mapped[int] = mapped_column(server_default=text("0"))
    expired: Mapped[int] = mapped_column(server_default=text("0"))
    #: Of the unsure, those whose outcome is still being proved; `prove_at` is the earliest of their times.
    proving: Mapped[int] = mapped_column(server_default=text("0"))
    prove_at: Mapped[datetime | None]

    __table_args__ = (
        CheckConstraint(_one_of("channel", Channel), name="channel"),
        CheckConstraint(
            "owed >= 0 AND sending >= 0 AND retrying >= 0 AND sent >= 0 AND failed >= 0 AND dead_lettered >= 0"
            " AND unsure >= 0 AND suppressed >= 0 AND cancelled >= 0 AND expired >= 0"
            " AND owed + sending + retrying + sent + failed + dead_lettered + unsure + suppressed + cancelled + expired"
            " = last_row - first_row + 1",
            name="books",
        ),
        CheckConstraint(
            "(holder IS NULL) = (leased_at IS NULL) AND (holder IS NULL) = (chain_no IS NULL)", name="lease"
        ),
        CheckConstraint("settled_at IS NULL OR owed + sending + retrying + proving = 0", name="settled_at"),
        CheckConstraint("proving BETWEEN 0 AND unsure AND (proving = 0) = (prove_at IS NULL)", name="proving"),
        Index(
            "ix_batch_due",
            "send_id",
            "channel",
            "due_at",
            "batch_no",
            postgresql_where=text("holder IS NULL AND due_at IS NOT NULL"),
        ),
        Index("ix_batch_open", "send_id", "batch_no", postgresql_where=text("settled_at IS NULL")),
        Index("ix_batch_prove", "prove_at", postgresql_where=text("prove_at IS NOT NULL")),
        Index("ix_batch_held", "holder", postgresql_where=text("holder IS NOT NULL")),
        Index(
            "ix_batch_recovered",
            "send_id",
            "batch_no",
            postgresql_where=text("recovery_count > 0 AND settled_at IS NULL"),
        ),
        {"postgresql_with": {"fillfactor": "70"}},
    )


class Delivery(Base):
    """What is owed to one recipient on one channel. Its public id is `<send_id>.<row_no>`."""

    __tablename__ = "delivery"
    send_id: Mapped[UUID] = mapped_column(primary_key=True)
    row_no: Mapped[int] = mapped_column(Integer, primary_key=True)
    channel: Mapped[str]
    status: Mapped[str] = mapped_column(server_default=text("'owed'"))
    address: Mapped[str]
    params: Mapped[dict[str, Any] | None]
    reference: Mapped[str | None]
    segments: Mapped[int | None] = mapped_column(SmallInteger)
    attempt_count: Mapped[int] = mapped_column(SmallInteger, server_default=text("0"))
    epoch: Mapped[int] = mapped_column(SmallInteger, server_default=text("0"))
    claim_id: Mapped[UUID | None]
    next_attempt_at: Mapped[datetime | None]
    first_attempt_at: Mapped[datetime | None]
    last_attempt_at: Mapped[datetime | None]
    settled_at: Mapped[datetime | None]
    #: Who the newest claim was going to call, and under which account: only there can an unknown outcome be proved.
    provider: Mapped[str | None]
    credential: Mapped[str | None]
    provider_ref: Mapped[str | None]
    last_error: Mapped[str | None]
    receipt_status: Mapped[str | None]
    #: Set on an `unsure` row that is being proved: the next look. An unsure row without it is parked.
    prove_at: Mapped[datetime | None]
    prove_count: Mapped[int] = mapped_column(SmallInteger, server_default=text("0"))

    __table_args__ = (
        CheckConstraint(_one_of("status", DeliveryStatus), name="status"),
        CheckConstraint(_one_of("channel", Channel), name="channel"),
        CheckConstraint("(status = 'sending') = (claim_id IS NOT NULL) OR status = 'unsure'", name="claim"),
        CheckConstraint(
            "prove_at IS NOT NULL OR (status IN ('owed', 'sending', 'retrying')) = (settled_at IS NULL)",
            name="settled_at",
        ),
        CheckConstraint("status <> 'retrying' OR next_attempt_at IS NOT NULL", name="retrying"),
        CheckConstraint("status IN ('owed', 'retrying') OR next_attempt_at IS NULL", name="next_attempt_at"),
        CheckConstraint("prove_at IS NULL OR status = 'unsure'", name="prove_at"),
        CheckConstraint("char_length(last_error) <= 1024", name="last_error"),
        {"postgresql_with": {"fillfactor": "70"}},
    )


class Attempt(Base):
    """
    Append-only: one row per call that reached a result, and one per claim whose holder died.

    `signature` groups equal failures; empty for an accepted call.
    """

    __tablename__ = "attempt"
    send_id: Mapped[UUID] = mapped_column(primary_key=True)
    row_no: Mapped[int] = mapped_column(Integer, primary_key=True)
    claim_id: Mapped[UUID] = mapped_column(primary_key=True)
    epoch: Mapped[int] = mapped_column(SmallInteger)
    number: Mapped[int] = mapped_column(SmallInteger)
    channel: Mapped[str]
    provider: Mapped[str]
    outcome: Mapped[str]
    became: Mapped[str]
    code: Mapped[str | None]
    detail: Mapped[str | None]
    signature: Mapped[str | None]
    provider_ref: Mapped[str | None]
    started_at: Mapped[datetime]
    ended_at: Mapped[datetime]
    evidence: Mapped[dict[str, Any] | None]

    __table_args__ = (
        CheckConstraint(_one_of("became", DeliveryStatus), name="became"),
        CheckConstraint("char_length(detail) <= 1024", name="detail"),
        Index("ix_attempt_failures", "ended_at", postgresql_where=text("signature IS NOT NULL")),
        Index("ix_attempt_signature", "signature", "ended_at", postgresql_where=text("signature IS NOT NULL")),
        Index("ix_attempt_twilio", "provider_ref", postgresql_where=text("provider = 'twilio'")),
    )


class FailureGroup(Base):
    """The title of a failure signature; written once, when the first failure of its kind is recorded."""

    __tablename__ = "failure_group"
    signature: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[int] = mapped_column(SmallInteger)
    channel: Mapped[str]
    provider: Mapped[str]
    outcome: Mapped[str]
    title: Mapped[str]
    first_seen_at: Mapped[datetime] = mapped_column(server_default=_NOW)


class AddressKey(Base):
    """The secret of this ledger under which addresses are hashed: one row. The hash finds, and tells nothing."""

    __tablename__ = "address_key"
    only_one: Mapped[bool] = mapped_column(primary_key=True, server_default=text("true"))
    key: Mapped[bytes]

    __table_args__ = (CheckConstraint("only_one", name="only_one"),)


class Failure(Base):
    """
    One row per delivery that is failed, dead-lettered or unsure now; kept by a trigger on `delivery` (ADR-0011).

    `signature` is that of the attempt that settled it, `failed_at` when that was. `refused`: at acceptance, there is
    nothing to send it to. `proving`: the machine still asks its provider. `reported`: its provider said since that it
    took it. `discarded_*`: a person gave it up.
    """

    __tablename__ = "failure"
    send_id: Mapped[UUID] = mapped_column(primary_key=True)
    row_no: Mapped[int] = mapped_column(Integer, primary_key=True)
    epoch: Mapped[int] = mapped_column(SmallInteger)
    tenant_id: Mapped[int] = mapped_column(BigInteger)
    channel: Mapped[str]
    provider: Mapped[str | None]
    status: Mapped[str]
    outcome: Mapped[str | None]
    code: Mapped[str | None]
    signature: Mapped[str]
    attempts: Mapped[int] = mapped_column(SmallInteger)
    failed_at: Mapped[datetime]
    proving: Mapped[bool]
    refused: Mapped[bool]
    address_hash: Mapped[bytes]
    reported: Mapped[bool] = mapped_column(server_default=text("false"))
    discarded_at: Mapped[datetime | None]
    discarded_by: Mapped[str | None]
    discarded_operation: Mapped[UUID | None]

    __table_args__ = (
        CheckConstraint("status IN ('failed', 'dead_lettered', 'unsure')", name="status"),
        CheckConstraint("NOT proving OR status = 'unsure'", name="proving"),
        CheckConstraint(
            "(discarded_at IS NULL) = (discarded_by IS NULL)"
            " AND (discarded_at IS NULL) = (discarded_operation IS NULL)",
            name="discarded",
        ),
        Index("ix_failure_status", "status", text("failed_at DESC"), "send_id", "row_no"),
        Index("ix_failure_signature", "signature", text("failed_at DESC"), "send_id", "row_no"),
        Index(None, "address_hash"),
        Index("ix_failure_discarded", "send_id", "row_no", postgresql_where=text("discarded_at IS NOT NULL")),
    )


class FailureNote(Base):
    """What people wrote to a group of failures; a newer note replaces the one before."""

    __tablename__ = "failure_note"
    signature: Mapped[str] = mapped_column(primary_key=True)
    text: Mapped[str]
    author: Mapped[str]
    at: Mapped[datetime] = mapped_column(server_default=_NOW)


class FailureOperation(Base):
    """Which operations took deliveries of a group of failures."""

    __tablename__ = "failure_operation"
    signature: Mapped[str] = mapped_column(primary_key=True)
    operation_id: Mapped[UUID] = mapped_column(primary_key=True)
    at: Mapped[datetime] = mapped_column(server_default=_NOW)


class FailedJob(Base):
    """A message that ended in an exception or was set aside; the newest thousand. `starts`: how often it was begun."""

    __tablename__ = "failed_job"
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    at: Mapped[datetime] = mapped_column(server_default=_NOW)
    queue: Mapped[str]
    job: Mapped[str]
    kind: Mapped[str]
    send_id: Mapped[UUID | None]
    tenant_id: Mapped[int | None] = mapped_column(BigInteger)
    error: Mapped[str]
    starts: Mapped[int | None]

    __table_args__ = (
        CheckConstraint("kind IN ('raised', 'set_aside')", name="kind"),
        CheckConstraint("char_length(error) <= 1024", name="error"),
    )


class Chain(Base):
    """
    One message working through the batches of one channel of a send.

    `token` is the id of its current message in Redis and its fence: a message with another token is stale.
    """

    __tablename__ = "chain"
    send_id: Mapped[UUID] = mapped_column(ForeignKey("send.id"), primary_key=True)
    channel: Mapped[str] = mapped_column(primary_key=True)
    chain_no: Mapped[int] = mapped_column(SmallInteger, primary_key=True)
    token: Mapped[UUID]
    holder: Mapped[UUID | None]
    queued_at: Mapped[datetime] = mapped_column(server_default=_NOW)
    started_at: Mapped[datetime | None]

    __table_args__ = (
        CheckConstraint(_one_of("channel", Channel), name="channel"),
        CheckConstraint("(holder IS NULL) = (started_at IS NULL)", name="running"),
        Index("ix_chain_held", "holder", postgresql_where=text("holder IS NOT NULL")),
    )


class Worker(Base):
    """A process that may hold batches and chains. It holds nothing once `lease_until` has passed."""

    __tablename__ = "worker"
    id: Mapped[UUID] = mapped_column(primary_key=True)
    name: Mapped[str]
    started_at: Mapped[datetime] = mapped_column(server_default=_NOW)
    lease_until: Mapped[datetime]


class Suppression(Base):
    """An address a tenant must not be sent to on a channel; a trigger keeps its keyed hash, as that of a failure."""

    __tablename__ = "suppression"
    tenant_id: Mapped[int] = mapped_column(ForeignKey("tenant.id"), primary_key=True)
    channel: Mapped[str] = mapped_column(primary_key=True)
    address: Mapped[str] = mapped_column(primary_key=True)
    reason: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=_NOW)
    address_hash: Mapped[bytes]

    __table_args__ = (
        CheckConstraint(_one_of("channel", Channel), name="channel"),
        Index("ix_suppression_address_hash", "tenant_id", "address_hash"),
    )


class ProviderState(Base):
    """What the fleet knows of a provider and credential: what it took and refused, and if its set-up is wrong."""

    __tablename__ = "provider_state"
    provider: Mapped[str] = mapped_column(primary_key=True)
    credential: Mapped[str] = mapped_column(primary_key=True)
    last_accepted_at: Mapped[datetime | None]
    #: An outage: since when, and until when, calls were made and nothing was taken. Over once something was.
    refused_since: Mapped[datetime | None]
    refused_at: Mapped[datetime | None]
    configuration_error: Mapped[str | None]
    configuration_error_at: Mapped[datetime | None]


class ProviderHold(Base):
    """An operator's hold: no call is claimed for this provider and credential. Redis is told of it; here it is true."""

    __tablename__ = "provider_hold"
    provider: Mapped[str] = mapped_column(primary_key=True)
    credential: Mapped[str] = mapped_column(primary_key=True)
    #: A new one each time somebody holds it: by it one sees whether Redis tells of this hold or of another.
    id: Mapped[UUID]
    operator: Mapped[str]
    reason: Mapped[str]
    since: Mapped[datetime] = mapped_column(server_default=_NOW)


class IdempotencyKey(Base):
    """A submission's Idempotency-Key and, once it is answered, the answer."""

    __tablename__ = "idempotency_key"
    tenant_id: Mapped[int] = mapped_column(ForeignKey("tenant.id"), primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    fingerprint: Mapped[bytes]
    owner: Mapped[UUID]
    locked_until: Mapped[datetime]
    send_id: Mapped[UUID | None]
    answer: Mapped[dict[str, Any] | None]
    created_at: Mapped[datetime] = mapped_column(server_default=_NOW)

    __table_args__ = (
        CheckConstraint("(send_id IS NULL) = (answer IS NULL)", name="answer"),
        UniqueConstraint("tenant_id", "send_id"),
        Index(None, "created_at"),
    )


class SandboxMessage(Base):
    """What the sandbox provider was given; `key` is its idempotency key. A message that is no delivery names none."""

    __tablename__ = "sandbox_message"
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    key: Mapped[UUID] = mapped_column(unique=True)
    channel: Mapped[str]
    address: Mapped[str]
    sender: Mapped[str | None]
    reply_to: Mapped[str | None]
    subject: Mapped[str | None]
    text: Mapped[str | None]
    html: Mapped[str | None]
    received_at: Mapped[datetime] = mapped_column(server_default=_NOW)
    send_id: Mapped[UUID | None]
    row_no: Mapped[int | None]

    __table_args__ = (CheckConstraint(_one_of("channel", Channel), name="channel"), Index(None, "received_at"))


class PeriodicSlot(Base):
    """The newest tick of each periodic job; claiming a tick is one guarded UPDATE, so several clocks are safe."""

    __tablename__ = "periodic_slot"
    name: Mapped[str] = mapped_column(primary_key=True)
    slot: Mapped[int] = mapped_column(BigInteger)
    claimed_at: Mapped[datetime] = mapped_column(server_default=_NOW)


class QueuePause(Base):
    """A queue that an operator paused: workers leave it alone until the row is gone. Redis knows nothing of it."""

    __tablename__ = "queue_pause"
    queue: Mapped[str] = mapped_column(primary_key=True)
    operator: Mapped[str]
    reason: Mapped[str]
    paused_at: Mapped[datetime] = mapped_column(server_default=_NOW)


class Receipt(Base):
    """
    Append-only: what a provider reported about a message after taking it.

    Kept even when it comes before our own record of the call, and applied (`applied_at`) once there is one; the
    delivery's `receipt_status` only moves forward. `epoch` is the delivery's: a requeued one is another message.
    """

    __tablename__ = "receipt"
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    send_id: Mapped[UUID]
    row_no: Mapped[int]
    epoch: Mapped[int] = mapped_column(SmallInteger)
    provider: Mapped[str]
    provider_ref: Mapped[str | None]
    status: Mapped[str]
    code: Mapped[str | None]
    received_at: Mapped[datetime] = mapped_column(server_default=_NOW)
    applied_at: Mapped[datetime | None]

    __table_args__ = (
        Index("ix_receipt_delivery", "send_id", "row_no"),
        Index("ix_receipt_waiting", "id", postgresql_where=text("applied_at IS NULL")),
        Index("ix_receipt_provider_ref", "provider_ref", postgresql_where=text("provider_ref IS NOT NULL")),
    )


class SendEvent(Base):
    """Append-only: what was recovered of a send, and which workers left it while draining. Goes with its deliveries."""

    __tablename__ = "send_event"
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    send_id: Mapped[UUID]
    at: Mapped[datetime] = mapped_column(server_default=_NOW)
    kind: Mapped[str]
    batch_no: Mapped[int | None] = mapped_column(Integer)
    deliveries: Mapped[int | None] = mapped_column(Integer)
    worker: Mapped[str | None]

    __table_args__ = (Index("ix_send_event_send_id", "send_id", text("id DESC")),)


class RecoveryPass(Base):
    """
    One pass of the reconciler; `counts` is {kind: {found, retried, requeued, given_up}}.

    `unaccounted` is what it found wrong in the books: {"deliveries", "sends"}; empty where they balance.
    """

    __tablename__ = "recovery_pass"
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    worker: Mapped[str]
    fence: Mapped[int] = mapped_column(BigInteger)
    started_at: Mapped[datetime] = mapped_column(server_default=_NOW)
    ended_at: Mapped[datetime | None]
    counts: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))
    error: Mapped[str | None]
    unaccounted: Mapped[dict[str, Any] | None]

    __table_args__ = (Index("ix_recovery_pass_started_at", text("started_at DESC")),)


class Operation(Base):
    """
    A person's bulk action on a frozen set of deliveries (its items), done in the background in chunks.

    `as_of` is the cut-off of the preview: what came later is not in the set. `run_at` is when it begins, then when
    its next chunk may go: its pace. `canary`: a few go first, the last of them at `stage_at`. `result` is what had come
    of it a day after its end, until then what was counted `meanwhile`; `emptied_at`: retention removed its items, the
    rest is kept.
    """

    __tablename__ = "operation"
    id: Mapped[UUID] = mapped_column(primary_key=True)
    kind: Mapped[str]
    status: Mapped[str]
    operator: Mapped[str]
    reason: Mapped[str | None]
    filter: Mapped[dict[str, Any]]
    accepts_duplicates: Mapped[bool] = mapped_column(server_default=text("false"))
    canary: Mapped[bool] = mapped_column(server_default=text("false"))
    as_of: Mapped[datetime]
    run_at: Mapped[datetime]
    total: Mapped[int]
    done: Mapped[int] = mapped_column(server_default=text("0"))
    skipped: Mapped[int] = mapped_column(server_default=text("0"))
    created_at: Mapped[datetime] = mapped_column(server_default=_NOW)
    started_at: Mapped[datetime | None]
    stage_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    why: Mapped[str | None]
    result: Mapped[dict[str, Any] | None]
    emptied_at: Mapped[datetime | None]

    __table_args__ = (
        CheckConstraint("kind IN ('requeue', 'discard', 'restore')", name="kind"),
        CheckConstraint("status IN ('scheduled', 'running', 'stopped', 'undone', 'done')", name="status"),
        CheckConstraint("(status IN ('stopped', 'undone', 'done')) = (ended_at IS NOT NULL)", name="ended_at"),
        CheckConstraint("done + skipped <= total", name="counts"),
        Index("ix_operation_open", "run_at", postgresql_where=text("status IN ('scheduled', 'running')")),
    )


class OperationItem(Base):
    """
    One delivery of an operation's frozen set; `epoch` is the delivery's when the set was made: its guard.

    No foreign key: a set is frozen in the transaction of its operation, and a check per row took a sixth of its time.
    """

    __tablename__ = "operation_item"
    operation_id: Mapped[UUID] = mapped_column(primary_key=True)
    send_id: Mapped[UUID] = mapped_column(primary_key=True)
    row_no: Mapped[int] = mapped_column(Integer, primary_key=True)
    epoch: Mapped[int] = mapped_column(SmallInteger)
    result: Mapped[str | None]
    why: Mapped[str | None]

    __table_args__ = (
        CheckConstraint("result IN ('done', 'skipped')", name="result"),
        Index(
            "ix_operation_item_open",
            "operation_id",
            "send_id",
            "row_no",
            postgresql_where=text("result IS NULL"),
        ),
    )


class OperationNotification(Base):
    """One notification of an operation's frozen set; that it died before the operation's `as_of` is its guard."""

    __tablename__ = "operation_notification"
    operation_id: Mapped[UUID] = mapped_column(primary_key=True)
    notification_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False, index=True)
    result: Mapped[str | None]
    why: Mapped[str | None]

    __table_args__ = (
        CheckConstraint("result IN ('done', 'skipped')", name="result"),
        Index(
            "ix_operation_notification_open",
            "operation_id",
            "notification_id",
            postgresql_where=text("result IS NULL"),
        ),
    )


class MinuteCount(Base):
    """
    What happened in a minute, written with what happened. Counts only grow; `minute` is -infinity for all that is old.

    `writer` is the database connection that counted (its backend's process id), 0 once the rows of a minute are
    folded into one: no two transactions ever wait for each other here. `provider` is empty where none was involved.
    `took` is the bucket (`shared.domain.pace`) of how long the `sent` of a row took, 0 for a row without any.
    `resolved` left `unsure` by proof, `requeued` any failure by a person.
    """

    __tablename__ = "minute_count"
    minute: Mapped[datetime] = mapped_column(primary_key=True)
    writer: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    mode: Mapped[str] = mapped_column(primary_key=True)
    channel: Mapped[str] = mapped_column(primary_key=True)
    provider: Mapped[str] = mapped_column(primary_key=True)
    took: Mapped[int] = mapped_column(SmallInteger, primary_key=True, autoincrement=False)
    requests: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    accepted: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    calls: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    sent: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    failed: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    dead_lettered: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    unsure: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    suppressed: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    cancelled: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    expired: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    retried: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    throttled: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    requeued: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    resolved: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))

    __table_args__ = (
        CheckConstraint(_one_of("mode", Mode), name="mode"),
        CheckConstraint(_one_of("channel", Channel), name="channel"),
        {"postgresql_with": {"fillfactor": "50"}},
    )


class Audit(Base):
    """
    Append-only: who did what, why, and what came of it. No address is in it.

    `account` is the operator's at the sign-in provider: two people may have one name there.
    """

    __tablename__ = "audit"
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    at: Mapped[datetime] = mapped_column(server_default=_NOW)
    operator: Mapped[str]
    action: Mapped[str]
    target: Mapped[str]
    reason: Mapped[str | None]
    count: Mapped[int | None]
    result: Mapped[str]
    detail: Mapped[dict[str, Any] | None]
    role: Mapped[str | None]
    request_id: Mapped[str | None]
    account: Mapped[str | None]

    __table_args__ = (
        Index("ix_audit_at", text("at DESC")),
        Index("ix_audit_operator_id", "operator", "id"),
        Index("ix_audit_target", "target", "id"),
    )


class SignInLink(Base):
    """A link that signs one browser in once. Only a hash of what stands in it is kept."""

    __tablename__ = "sign_in_link"
    token_hash: Mapped[bytes] = mapped_column(primary_key=True)
    operator: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=_NOW)
    expires_at: Mapped[datetime]
    used_at: Mapped[datetime | None]


class OperatorSession(Base):
    """
    A person who is signed in to the pages.

    `tokens` are the provider's, encrypted with a key made of SECRET_KEY; None after a link. `check_begun_at` is set
    while one process asks the provider about the role, so that no other does.
    """

    __tablename__ = "operator_session"
    id: Mapped[UUID] = mapped_column(primary_key=True)
    operator: Mapped[str]
    subject: Mapped[str | None]
    role: Mapped[str]
    tokens: Mapped[bytes | None]
    created_at: Mapped[datetime] = mapped_column(server_default=_NOW)
    expires_at: Mapped[datetime]
    checked_at: Mapped[datetime] = mapped_column(server_default=_NOW)
    check_begun_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]

    __table_args__ = (
        CheckConstraint("role IN ('admin', 'read')", name="role"),
        Index("ix_operator_session_expires_at", "expires_at"),
    )


class Event(Base):
    """
    Something that happened, told once by its dedup key.

    `received_at` moves when it is handed in again with a higher severity: channels look at it again then.
    """

    __tablename__ = "event"
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    tenant_id: Mapped[int] = mapped_column(ForeignKey("tenant.id"))
    dedup_key: Mapped[str]
    kind: Mapped[str]
    subject: Mapped[str]
    severity: Mapped[str]
    details: Mapped[dict[str, Any] | None]
    finding_key: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(server_default=_NOW)
    received_at: Mapped[datetime] = mapped_column(server_default=_NOW)

    __table_args__ = (
        CheckConstraint(_one_of("severity", Severity), name="severity"),
        UniqueConstraint("tenant_id", "dedup_key"),
        Index(None, "tenant_id", "received_at"),
        Index(None, "received_at"),
    )


class Finding(Base):
    """
    Something that is so, or no longer. `changed_at`: when it last became something that a channel may not have heard.

    `dedup_key` says what of it is told once: another one is another thing to be told.
    """

    __tablename__ = "finding"
    tenant_id: Mapped[int] = mapped_column(ForeignKey("tenant.id"), primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    source: Mapped[str] = mapped_column(server_default=text("''"))
    dedup_key: Mapped[str]
    kind: Mapped[str]
    subject: Mapped[str]
    severity: Mapped[str]
    details: Mapped[dict[str, Any] | None]
    active: Mapped[bool]
    created_at: Mapped[datetime] = mapped_column(server_default=_NOW)
    changed_at: Mapped[datetime] = mapped_column(server_default=_NOW)
    inactive_at: Mapped[datetime | None]

    __table_args__ = (
        CheckConstraint(_one_of("severity", Severity), name="severity"),
        CheckConstraint("active = (inactive_at IS NULL)", name="inactive_at"),
        Index("ix_finding_active", "tenant_id", "changed_at", postgresql_where=text("active")),
        Index("ix_finding_source", "tenant_id", "source", postgresql_where=text("active")),
        Index("ix_finding_active_dedup_key", "tenant_id", "dedup_key", postgresql_where=text("active")),
        Index("ix_finding_inactive_at", "inactive_at", postgresql_where=text("inactive_at IS NOT NULL")),
    )


class DigestChannel(Base):
    """
    Where a tenant's events and findings are told. Its secrets are in `digest_channel_secret`, which no page reads.

    `events_from`: events received before are not looked at; moved when the filter changes. `detected_at`: how far
    detection has come. `wait_until`: the endpoint told us to slow down, or refused us and is looked at again then.
    `setup_version` counts a person's changes: a wait or refusal is written down only on the set-up that got it.
    """

    __tablename__ = "digest_channel"
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    tenant_id: Mapped[int] = mapped_column(ForeignKey("tenant.id"))
    name: Mapped[str] = mapped_column(unique=True)
    type: Mapped[str]
    config: Mapped[dict[str, Any]]
    kinds: Mapped[list[str] | None] = mapped_column(ARRAY(Text))
    min_severity: Mapped[str]
    tells_existing: Mapped[bool] = mapped_column(server_default=text("false"))
    enabled: Mapped[bool] = mapped_column(server_default=text("true"))
    retry_base_delay_ms: Mapped[int | None]
    max_delivery_attempts: Mapped[int | None] = mapped_column(SmallInteger)
    retention_days: Mapped[int | None]
    created_at: Mapped[datetime] = mapped_column(server_default=_NOW)
    baselined_at: Mapped[datetime | None]
    events_from: Mapped[datetime | None]
    detected_at: Mapped[datetime | None]
    last_sent_at: Mapped[datetime | None]
    wait_until: Mapped[datetime | None]
    not_configured: Mapped[str | None]
    not_configured_at: Mapped[datetime | None]
    setup_version: Mapped[int] = mapped_column(server_default=text("0"))

    __table_args__ = (
        CheckConstraint(_one_of("type", ChannelType), name="type"),
        CheckConstraint(_one_of("min_severity", Severity), name="min_severity"),
        CheckConstraint("(not_configured IS NULL) = (not_configured_at IS NULL)", name="not_configured"),
        CheckConstraint("char_length(not_configured) <= 1024", name="not_configured_length"),
        CheckConstraint(
            "retry_base_delay_ms > 0 AND max_delivery_attempts > 0 AND retention_days > 0", name="settings"
        ),
        Index(None, "tenant_id"),
    )


class DigestChannelSecret(Base):
    """What a channel proves itself with, its address where that is a secret too. Read by the dispatch alone."""

    __tablename__ = "digest_channel_secret"
    channel_id: Mapped[int] = mapped_column(ForeignKey("digest_channel.id", ondelete="CASCADE"), primary_key=True)
    secret: Mapped[dict[str, Any]]


class SentDigest(Base):
    """
    One message to a channel. Its id is the dispatch batch id of its items and what the receiver knows it by.

    `claim_id` is the fence of the call under way: a result is recorded only under it. `next_attempt_at`: when a frozen
    set is repeated. `maybe_known`: a call may have been taken, so that the set stays together under its id.
    `reference`: the send that an e-mail digest became.
    """

    __tablename__ = "digest"
    id: Mapped[UUID] = mapped_column(primary_key=True)
    channel_id: Mapped[int] = mapped_column(ForeignKey("digest_channel.id"))
    status: Mapped[str]
    item_count: Mapped[int]
    left_count: Mapped[int]
    created_at: Mapped[datetime] = mapped_column(server_default=_NOW)
    claim_id: Mapped[UUID | None]
    leased_until: Mapped[datetime | None]
    taken_over: Mapped[int] = mapped_column(SmallInteger, server_default=text("0"))
    maybe_known: Mapped[bool] = mapped_column(server_default=text("false"))
    next_attempt_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    outcome: Mapped[str | None]
    detail: Mapped[str | None]
    reference: Mapped[str | None]

    __table_args__ = (
        CheckConstraint(_one_of("status", DigestStatus), name="status"),
        CheckConstraint(
            "(status = 'calling') = (claim_id IS NOT NULL) AND (claim_id IS NULL) = (leased_until IS NULL)",
            name="claim",
        ),
        CheckConstraint("(status = 'frozen') = (next_attempt_at IS NOT NULL)", name="frozen"),
        CheckConstraint("(status IN ('sent', 'failed')) = (ended_at IS NOT NULL)", name="ended_at"),
        CheckConstraint("char_length(detail) <= 1024", name="detail"),
        Index("ix_digest_open", "channel_id", "created_at", postgresql_where=text("status IN ('calling', 'frozen')")),
        Index("ix_digest_newest", "channel_id", text("created_at DESC")),
        Index("ix_digest_ended_at", "ended_at", postgresql_where=text("ended_at IS NOT NULL")),
    )


class Notification(Base):
    """
    One thing to be told on one channel; unique by channel and dedup key, so that nothing is told twice.

    What it says is as its finding or event is when it is put into a message. `was_over`: the finding was not so any
    more then. `dispatch_batch_id`: the digest that told it, or that it is in while a call is under way or its set is
    frozen.
    `discarded_at`: a person gave the dead letter up; it stays one.
    """

    __tablename__ = "notification"
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    channel_id: Mapped[int] = mapped_column(ForeignKey("digest_channel.id"))
    dedup_key: Mapped[str]
    kind: Mapped[str]
    subject: Mapped[str]
    severity: Mapped[str]
    details: Mapped[dict[str, Any] | None]
    finding_key: Mapped[str | None]
    occurred_at: Mapped[datetime]
    created_at: Mapped[datetime] = mapped_column(server_default=_NOW)
    status: Mapped[str]
    attempt_count: Mapped[int] = mapped_column(SmallInteger, server_default=text("0"))
    owed_since: Mapped[datetime] = mapped_column(server_default=_NOW)
    next_attempt_at: Mapped[datetime | None]
    last_error: Mapped[str | None]
    sent_at: Mapped[datetime | None]
    final_at: Mapped[datetime | None]
    dispatch_batch_id: Mapped[UUID | None]
    was_over: Mapped[bool] = mapped_column(server_default=text("false"))
    discarded_at: Mapped[datetime | None]

    __table_args__ = (
        CheckConstraint(_one_of("status", NotificationStatus), name="status"),
        CheckConstraint(_one_of("severity", Severity), name="severity"),
        CheckConstraint("(status IN ('pending', 'retrying')) = (final_at IS NULL)", name="final_at"),
        CheckConstraint("(final_at IS NULL) = (next_attempt_at IS NOT NULL)", name="next_attempt_at"),
        CheckConstraint("(status = 'sent') = (sent_at IS NOT NULL)", name="sent_at"),
        CheckConstraint("status <> 'sent' OR dispatch_batch_id IS NOT NULL", name="dispatch_batch_id"),
        CheckConstraint("char_length(last_error) <= 1024", name="last_error"),
        UniqueConstraint("channel_id", "dedup_key"),
        Index(
            "ix_notification_due",
            "channel_id",
            "next_attempt_at",
            "id",
            postgresql_where=text("status IN ('pending', 'retrying') AND dispatch_batch_id IS NULL"),
        ),
        Index("ix_notification_open", "channel_id", "status", postgresql_where=text("final_at IS NULL")),
        Index("ix_notification_batch", "dispatch_batch_id", postgresql_where=text("dispatch_batch_id IS NOT NULL")),
        Index("ix_notification_final", "channel_id", "final_at", postgresql_where=text("final_at IS NOT NULL")),
        Index("ix_notification_dead", "channel_id", "id", postgresql_where=text("status = 'dead_lettered'")),
        Index(
            "ix_notification_undecided",
            "channel_id",
            "final_at",
            postgresql_where=text("status = 'dead_lettered' AND discarded_at IS NULL"),
        ),
        Index("ix_notification_newest", "channel_id", text("(-id)")),
        Index("ix_notification_kind", "channel_id", "kind", text("(-id)")),
        Index("ix_notification_status", "channel_id", "status", text("(-id)")),
        Index("ix_notification_finding", "channel_id", "finding_key", postgresql_where=text("finding_key IS NOT NULL")),
    )


class NotificationCount(Base):
    """All-time counts behind the metrics: what became of notifications, by channel and kind; never goes back."""

    __tablename__ = "notification_count"
    channel: Mapped[str] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(primary_key=True)
    became: Mapped[str] = mapped_column(primary_key=True)
    count: Mapped[int] = mapped_column(BigInteger)

    __table_args__ = (CheckConstraint("became IN ('sent', 'transient', 'dead_lettered')", name="became"),)


class DigestRun(Base):
    """
    A dispatch run, or a test of a channel that a person asked for (`channel_id`), and what it did.

    The asker makes the row and a worker that takes it up writes `started_at`; `result` is what the asker is shown.
    """

    __tablename__ = "digest_run"
    id: Mapped[UUID] = mapped_column(primary_key=True)
    channel_id: Mapped[int | None] = mapped_column(ForeignKey("digest_channel.id", ondelete="CASCADE"))
    asked_by: Mapped[str]
    asked_at: Mapped[datetime] = mapped_column(server_default=_NOW)
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    worker: Mapped[str | None]
    result: Mapped[dict[str, Any] | None]

    __table_args__ = (Index(None, "asked_at"), Index(None, "channel_id"))


class RetentionRun(Base):
    """One day's removal of what is old; `removed` counts rows by table while it runs."""

    __tablename__ = "retention_run"
    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    started_at: Mapped[datetime] = mapped_column(server_default=_NOW)
    progress_at: Mapped[datetime] = mapped_column(server_default=_NOW)
    ended_at: Mapped[datetime | None]
    worker: Mapped[str]
    removed: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))
    longest_ms: Mapped[int] = mapped_column(server_default=text("0"))
    error: Mapped[str | None]

    __table_args__ = (Index("ix_retention_run_started_at", text("started_at DESC")),)

"""
Acceptance: from a body on disk to a send that is owed. One transaction; all faults or none of the rows.

Order: outline (first pass) → claim of the Idempotency-Key → header → recipients (second pass, stored by COPY as
they are checked) → send and batches → commit → enqueue. ADR-0006.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import IO
from uuid import UUID, uuid4

import redis

from admin.api.faults import Faults
from admin.api.json_stream import JsonError
from admin.api.limits import MAX_HEADER_CHARS, SMS_MAX_CHARS
from admin.api.outline import Outline, read_outline
from admin.api.recipients import RecipientCheck
from admin.api.schemas import Counts, SendAccepted, SendLinks
from admin.api.submission import Header, read_header
from admin.api.turns import turn
from admin.errors import ProblemError
from admin.extensions import Services
from shared.domain.ids import new_send_id
from shared.domain.states import Channel, Lane, Mode, SendStatus
from shared.ledger import acceptance, idempotency
from shared.ledger.acceptance import AcceptedRow, ChannelRows, Submission
from shared.ledger.clock import ledger_now
from shared.ledger.db import POSTGRES_AWAY
from shared.ledger.idempotency import Claim
from shared.ledger.tenants import Caller

_log = logging.getLogger(__name__)

#: A request that dies blocks its key's repeats for this long, and one second more per MiB of its body.
_LOCK = timedelta(seconds=60)
_MIB = 1024 * 1024
#: Seconds after which a request should ask again about one that is still running.
_RETRY_AFTER_S = 2


class _RefusedError(Exception):
    """A fault was found: roll back what is stored so far."""


@dataclass(frozen=True)
class Answer:
    """The 202 of a submission; `replayed` when it was given before."""

    body: SendAccepted
    replayed: bool


def accept(
    services: Services, *, caller: Caller, tenant_id: int, file: IO[bytes], size: int, key: str | None
) -> Answer:
    """
    Accept a submission and return once it is owed; large ones take turns.

    Raises: ProblemError; one of POSTGRES_AWAY when Postgres is away, in which case it may be owed all the same if the
    connection broke during the commit (that is what Idempotency-Key is for).
    """
    with turn(services, size):
        return _accept_now(services, caller=caller, tenant_id=tenant_id, file=file, size=size, key=key)


def _accept_now(
    services: Services, *, caller: Caller, tenant_id: int, file: IO[bytes], size: int, key: str | None
) -> Answer:
    templates = 6 * 3 * services.settings.template_max_bytes  # three, every character written as an escape
    outline = _outline(file, fingerprint=key is not None, max_header_chars=MAX_HEADER_CHARS + templates)
    if key is None:
        body = _store(services, caller=caller, tenant_id=tenant_id, file=file, outline=outline, claim=None)
        return Answer(body, replayed=False)
    claim = Claim(tenant_id, key, uuid4())
    earlier = _claim(services, claim, outline.fingerprint or b"", lock=_LOCK + timedelta(seconds=size // _MIB))
    if earlier is not None:
        return Answer(earlier, replayed=True)
    try:
        body = _store(services, caller=caller, tenant_id=tenant_id, file=file, outline=outline, claim=claim)
    except BaseException:
        _release(services, claim)
        raise
    return Answer(body, replayed=False)


def _outline(file: IO[bytes], *, fingerprint: bool, max_header_chars: int) -> Outline:
    try:
        return read_outline(file, fingerprint=fingerprint, max_header_chars=max_header_chars)
    except JsonError as error:
        raise ProblemError(
            400, "bad-json", f"The body is not JSON: line {error.line}, column {error.column}: {error.detail}."
        ) from None


def _claim(services: Services, claim: Claim, fingerprint: bytes, *, lock: timedelta) -> SendAccepted | None:
    ttl = timedelta(hours=services.settings.idempotency_key_ttl_hours)
    try:
        with services.ledger.transaction() as connection:
            earlier = idempotency.claim(connection, claim, fingerprint=fingerprint, lock=lock, ttl=ttl)
    except idempotency.KeyReusedError:
        raise ProblemError(
            422, "idempotency-key-reused", "This Idempotency-Key was used with another body; use a new key."
        ) from None
    except idempotency.KeyBusyError:
        raise ProblemError(
            409,
            "idempotency-key-busy",
            "A request with this Idempotency-Key is still running; repeat this one to get its answer.",
            headers={"Retry-After": str(_RETRY_AFTER_S)},
        ) from None
    return None if earlier is None else SendAccepted.model_validate(earlier)


def _release(services: Services, claim: Claim) -> None:
    try:
        with services.ledger.transaction() as connection:
            idempotency.release(connection, claim)
    except POSTGRES_AWAY as error:
        # The claim ends by itself; what is being raised says more than this would.
        _log.warning("idempotency_key_kept", extra={"error": type(error).__name__})


def _store(
    services: Services, *, caller: Caller, tenant_id: int, file: IO[bytes], outline: Outline, claim: Claim | None
) -> SendAccepted:
    settings = services.settings
    now = datetime.now(UTC)
    faults = Faults(settings.api_max_faults)
    header = read_header(outline, caller=caller, settings=settings, now=now, faults=faults)
    total = sum(where.count for where in outline.lists.values())
    if total > settings.api_max_recipients:
        faults.add("", f"has {total:,} recipients; at most {settings.api_max_recipients:,} are taken in one submission")
        raise _refusal(faults)
    stream = _Recipients(services, header=header, outline=outline, file=file, caller=caller, faults=faults)
    if faults.count:
        stream.drain()
        raise _refusal(faults)
    send_id = new_send_id()
    try:
        body = _commit(services, stream, send_id=send_id, caller=caller, tenant_id=tenant_id, claim=claim)
    except _RefusedError:
        stream.drain()
        raise _refusal(faults) from None
    except idempotency.ClaimLostError:
        raise ProblemError(
            409, "idempotency-key-busy", "Another request took over this Idempotency-Key; repeat this one."
        ) from None
    enqueue_ingest(services, send_id)
    return body


class _Recipients:
    """The rows of a submission, channel by channel; what is read once is not read again."""

    def __init__(
        self, services: Services, *, header: Header, outline: Outline, file: IO[bytes], caller: Caller, faults: Faults
    ) -> None:
        self.header = header
        self.faults = faults
        self.done: list[ChannelRows] = []
        self._services = services
        self._outline = outline
        self._file = file
        self._caller = caller
        self._chunks = self._walk()

    def __iter__(self) -> Iterator[tuple[Channel, list[AcceptedRow]]]:
        return self._chunks

    def drain(self) -> None:
        """Check what is left, for its faults only."""
        for _ in self._chunks:
            pass

    def _walk(self) -> Iterator[tuple[Channel, list[AcceptedRow]]]:
        settings, next_row = self._services.settings, 1
        provider = "sandbox" if self._caller.mode is Mode.TEST else settings.sms_provider
        for content in self.header.channels:
            where = self._outline.lists.get(content.channel)
            if where is None:
                continue
            check = RecipientCheck(
                content,
                first_row=next_row,
                batch_size=settings.batch_size,
                shared=self.header.params,
                region=self._caller.default_region,
                max_sms_chars=SMS_MAX_CHARS[provider],
                max_part_chars=2 * settings.template_max_bytes,
                faults=self.faults,
            )
            self.done.append(check.rows)
            for chunk in check.chunks(self._file, where, skip_invalid=self.header.skip_invalid):
                yield content.channel, chunk
            next_row += check.rows.count


def _commit(
    services: Services,
    stream: _Recipients,
    *,
    send_id: UUID,
    caller: Caller,
    tenant_id: int,
    claim: Claim | None,
) -> SendAccepted:
    header, settings = stream.header, services.settings
    submission = Submission(
        send_id=send_id,
        tenant_id=tenant_id,
        api_key_id=caller.key_id,
        mode=caller.mode,
        name=header.name,
        content={content.channel.value: content.content for content in header.channels},
        params=header.params,
        send_at=header.send_at,
        valid_until=header.valid_until,
    )
    with services.ledger.transaction() as connection:
        now = ledger_now(connection)
        for channel, chunk in stream:
            if stream.faults.count:
                raise _RefusedError
            acceptance.store_rows(connection, send_id=send_id, channel=channel, rows=chunk, now=now)
        total = sum(rows.count for rows in stream.done)
        single = header.urgent or total <= settings.single_lane_max_recipients
        acceptance.store_send(
            connection,
            submission,
            channels=stream.done,
            lane=Lane.SINGLE if single else Lane.BULK,
            batch_size=settings.batch_size,
        )
        body = _answer(submission, stream.done, now=now)
        if claim is not None:
            idempotency.answer(connection, claim, send_id=send_id, body=body.model_dump(mode="json"))
    return body


def _answer(submission: Submission, channels: list[ChannelRows], *, now: datetime) -> SendAccepted:
    counts = {rows.channel: rows for rows in channels}
    sms = counts.get(Channel.SMS)
    notes = []
    if submission.send_at is not None and submission.send_at <= now:
        notes.append("send_at is in the past: the send begins at once")
    return SendAccepted(
        id=submission.send_id,
        status=SendStatus.PENDING,
        mode=submission.mode,
        accepted=Counts(**{rows.channel.value: rows.count for rows in channels}),
        duplicates=Counts(**{rows.channel.value: rows.duplicates for rows in channels}),
        invalid=Counts(**{rows.channel.value: rows.failed.total() for rows in channels}),
        segments=sms.segments if sms else None,
        send_at=submission.send_at,
        valid_until=submission.valid_until,
        notes=notes,
        links=links_of(submission.send_id),
    )


def links_of(send_id: UUID) -> SendLinks:
    """Where to read on about a send."""
    return SendLinks(self=f"/api/v1/sends/{send_id}", deliveries=f"/api/v1/sends/{send_id}/deliveries")


def enqueue_ingest(services: Services, send_id: UUID) -> None:
    """Ask for the fan-out of what is committed; without Redis the ledger's finders do it later."""
    try:
        services.jobs.ingest(send_id)
        services.doorbell.ring("channels", "sends", "last_hour")
    except redis.RedisError as error:
        # It is owed all the same: the ledger's finder of pending sends takes it up.
        _log.warning("ingest_not_enqueued", extra={"send_id": str(send_id), "error": type(error).__name__})


def _refusal(faults: Faults) -> ProblemError:
    some = "1 fault" if faults.count == 1 else f"{faults.count:,} faults"
    return ProblemError(
        422,
        "invalid-submission",
        f"Nothing was stored: the submission has {some}.",
        faults=faults.kept,
        more=faults.more,
    )

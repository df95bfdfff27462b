"""What a digest's call came to, written down under its claim, and said in the log."""

import logging
from datetime import datetime, timedelta

import redis

from shared.domain.digest_retry import Judged, judge
from shared.domain.digests import Digest, DigestStatus, LogEvent, NotificationStatus
from shared.domain.masking import mask_text
from shared.domain.outcome import Accepted, NotAttempted, Outcome, name_of
from shared.domain.retry import RetryPolicy
from shared.jobs import Jobs
from shared.ledger import digest_channels, notifications
from shared.ledger.db import Connection
from shared.ledger.digest_channels import TakenChannel
from shared.ledger.notifications import Claimed
from shared.settings import Settings
from workers.actors.digest_email import hand_in
from workers.middleware.runtime import Runtime
from workers.providers.digest.requests import scrub

_log = logging.getLogger(__name__)
#: A tick's own time counts for the backoff, so that the tick one interval later finds what waited for it; unless the
#: tick was so late that this would shorten the wait.
_TICK_IS_FRESH = timedelta(seconds=30)


class _OvertakenError(Exception):
    """The claim is another's by now: what was stored in this transaction must not stand."""


def policy_of(settings: Settings, channel: TakenChannel) -> RetryPolicy:
    """A channel's own settings where it has any, else the common ones; no jitter, since nobody else is in its way."""
    return RetryPolicy(
        base_delay_s=(channel.retry_base_delay_ms or settings.retry_base_delay_ms) / 1000,
        max_attempts=channel.max_delivery_attempts or settings.max_delivery_attempts,
        jitter_share=0.0,
        retry_after_min_s=settings.retry_after_min_ms / 1000,
        retry_after_max_s=settings.retry_after_max_ms / 1000,
        retry_after_default_s=settings.retry_after_default_ms / 1000,
    )


class Recorder:
    """Records the outcomes of one run; `began` is the moment of its tick, None for a run by hand."""

    def __init__(self, runtime: Runtime, jobs: Jobs, *, began: datetime | None) -> None:
        self._runtime = runtime
        self._jobs = jobs
        self._began = began

    def tell_by_email(self, channel: TakenChannel, claimed: Claimed) -> Judged | None:
        """Hand the digest in as a send and record it as told, in one transaction; None where it is another's."""
        judged = judge(
            Accepted(None), claimed.digest.items, policy_of(self._runtime.settings, channel), now=channel.now
        )
        try:
            with self._runtime.ledger.transaction() as connection:
                send_id = hand_in(connection, channel, claimed.digest, self._runtime.settings)
                reference = f"send {send_id}"
                if not notifications.record(
                    connection, claimed, judged, outcome="accepted", error=None, reference=reference
                ):
                    raise _OvertakenError  # noqa: TRY301  # rolls back what was stored
                digest_channels.note_sent(connection, channel.id)
        except _OvertakenError:
            return None
        try:
            self._jobs.ingest(send_id)
        except redis.RedisError as error:
            # It is owed; the reconciler finds it.
            _log.warning("ingest_not_enqueued", extra={"send_id": str(send_id), "error": type(error).__name__})
        self._say(channel, claimed.digest, judged, None)
        return judged

    def record(self, channel: TakenChannel, claimed: Claimed, outcome: Outcome) -> Judged | None:
        """Write an outcome down; None where the claim is another dispatcher's by now."""
        digest, settings = claimed.digest, self._runtime.settings
        judged = judge(
            outcome, digest.items, policy_of(settings, channel), now=self._now(channel), maybe_known=claimed.maybe_known
        )
        error = error_of(outcome, channel)
        with self._runtime.ledger.transaction() as connection:
            if not notifications.record(connection, claimed, judged, outcome=name_of(outcome), error=error):
                _log.warning("digest_overtaken", extra={"channel": channel.name, "digest": str(digest.id)})
                return None
            self._note_channel(connection, channel, judged, error)
        self._say(channel, digest, judged, error)
        return judged

    def _now(self, channel: TakenChannel) -> datetime:
        fresh = self._began is not None and timedelta() <= channel.now - self._began <= _TICK_IS_FRESH
        return self._began if fresh and self._began else channel.now

    def _note_channel(self, connection: Connection, channel: TakenChannel, judged: Judged, error: str | None) -> None:
        if judged.status is DigestStatus.SENT:
            digest_channels.note_sent(connection, channel.id)
        elif judged.waits_s is not None:
            if not digest_channels.note_waits(connection, channel, seconds=judged.waits_s):
                return
            extra = {"event_id": LogEvent.CHANNEL_WAITS.value, "channel": channel.name, "seconds": judged.waits_s}
            _log.info("digest_channel_told_to_wait", extra=extra)
        elif judged.refused:
            recheck_s = self._runtime.settings.configuration_recheck_ms / 1000
            is_news = digest_channels.note_refused(connection, channel, reason=error or "", recheck_s=recheck_s)
            if is_news is None:
                return
            extra = {"event_id": LogEvent.CHANNEL_REFUSES.value, "channel": channel.name, "reason": error}
            _log.log(logging.WARNING if is_news else logging.DEBUG, "digest_channel_not_configured", extra=extra)

    @staticmethod
    def _say(channel: TakenChannel, digest: Digest, judged: Judged, error: str | None) -> None:
        about = {"channel": channel.name, "digest": str(digest.id), "items": len(digest.items)}
        if judged.status is DigestStatus.SENT:
            _log.info("digest_sent", extra={"event_id": LogEvent.DIGEST_SENT.value, **about, "left": digest.left})
        elif judged.status is DigestStatus.FROZEN:
            extra = {"event_id": LogEvent.OUTCOME_UNKNOWN.value, **about, "error": error}
            _log.warning("digest_outcome_unknown", extra=extra)
        elif judged.fates:
            _log.info("digest_not_taken", extra={"event_id": LogEvent.DIGEST_NOT_TAKEN.value, **about, "error": error})
        for fate in judged.fates:
            if fate.status is NotificationStatus.DEAD_LETTERED:
                _log.warning(
                    "notification_dead_lettered",
                    extra={
                        "event_id": LogEvent.NOTIFICATION_DEAD_LETTERED.value,
                        "channel": channel.name,
                        "kind": fate.item.kind,
                        "subject": fate.item.subject,
                        "attempt_count": fate.attempt_count,
                        "error": error,
                    },
                )


def error_of(outcome: Outcome, channel: TakenChannel) -> str | None:
    """What is kept and shown of a failure: no secret of the channel, no address, at most 1,024 characters."""
    if isinstance(outcome, Accepted):
        return None
    if isinstance(outcome, NotAttempted):
        return outcome.reason
    return mask_text(scrub(f"{outcome.code}: {outcome.detail}" if outcome.detail else outcome.code, channel.secret))

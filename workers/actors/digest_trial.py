"""A test of a channel: one made-up event, and what exactly the endpoint answered."""

import logging
from typing import Any

import redis

from shared.domain.digests import ChannelType
from shared.domain.outcome import Accepted, Outcome, name_of
from shared.jobs import Jobs
from shared.ledger import digest_channels
from workers.actors.digest_calls import lacks, make_caller, ready_call, trial_digest
from workers.actors.digest_email import hand_in
from workers.actors.digest_record import error_of
from workers.middleware.runtime import Runtime
from workers.providers.digest.requests import DigestCall, scrub

_log = logging.getLogger(__name__)


def try_channel(runtime: Runtime, jobs: Jobs, channel_id: int) -> dict[str, Any]:
    """Send a channel a made-up event and say what exactly it answered. Where it takes that, what waits is due."""
    settings = runtime.settings
    with runtime.ledger.transaction() as connection:
        channel = digest_channels.take(connection, channel_id, even_disabled=True)
    if channel is None:
        return {"accepted": False, "answer": "the channel is being told something at this moment, or is gone"}
    digest = trial_digest(channel)
    refused = lacks(channel, settings)
    call = refused or (None if channel.type is ChannelType.EMAIL else ready_call(channel, digest, settings))
    if call is None:
        with runtime.ledger.transaction() as connection:
            send_id = hand_in(connection, channel, digest, settings)
        try:
            jobs.ingest(send_id)
        except redis.RedisError as error:
            _log.warning("ingest_not_enqueued", extra={"send_id": str(send_id), "error": type(error).__name__})
        outcome: Outcome = Accepted(None)
        said = {"answer": f"handed in as send {send_id}", "tries": 1}
    elif isinstance(call, DigestCall):
        caller = make_caller(settings)
        try:
            answered = next(caller.send([call], pause=runtime.wait_draining))[1]
        finally:
            caller.close()
        outcome = answered.outcome
        said = {"answer": scrub(answered.shown, channel.secret), "tries": answered.tries}
    else:
        outcome, said = call, {"answer": call.detail, "tries": 0}
    if isinstance(outcome, Accepted):
        with runtime.ledger.transaction() as connection:
            digest_channels.note_sent(connection, channel.id, told=False)
    means = name_of(outcome)
    return {"accepted": isinstance(outcome, Accepted), "means": means, "why": error_of(outcome, channel), **said}

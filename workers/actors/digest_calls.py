"""A channel and its digest as a call that may be made, or the outcome that says why not."""

from datetime import UTC, datetime

from shared.domain.digests import ChannelType, Digest, Item, Severity
from shared.domain.endpoints import EndpointError, host_list, read_endpoint
from shared.domain.ids import new_send_id
from shared.domain.outcome import Configuration, Scope
from shared.ledger.digest_channels import TakenChannel
from shared.settings import Settings
from workers.actors.digest_email import sender_of
from workers.providers.digest.caller import Caller
from workers.providers.digest.requests import DigestCall


def make_caller(settings: Settings) -> Caller:
    """The adapter of one run."""
    return Caller(
        timeout_ms=settings.digest_timeout_ms,
        ca_file=settings.digest_ca_file,
        private=host_list(settings.digest_private_hosts),
    )


def ready_call(channel: TakenChannel, digest: Digest, settings: Settings) -> DigestCall | Configuration:
    """
    The call of a channel that speaks HTTP.

    Its address is held against the settings of today: what was allowed when it was set up may not be any more.
    """
    try:
        read_endpoint(
            channel.secret.get("url", ""),
            plain_http=host_list(settings.digest_plain_http_hosts),
            private=host_list(settings.digest_private_hosts),
        )
    except EndpointError as error:
        return Configuration(Scope.PROVIDER, "not_configured", f"its address {error}")
    return DigestCall(channel.type, channel.secret, digest)


def lacks(channel: TakenChannel, settings: Settings) -> Configuration | None:
    """What an e-mail channel needs and nobody set."""
    if channel.type is ChannelType.EMAIL and sender_of(channel, settings) is None:
        said = "no sender: neither the channel, its tenant nor EMAIL_FROM names one"
        return Configuration(Scope.SENDER, "not_configured", said)
    return None


def trial_digest(channel: TakenChannel) -> Digest:
    """A message of one made-up event, for a person who tries a channel."""
    now = datetime.now(UTC)
    item = Item(
        id=0,
        dedup_key="test",
        kind="test",
        subject="This is a test of the channel. Nothing happened.",
        severity=Severity.INFO,
        details=None,
        finding=None,
        occurred_at=now,
        attempt_count=0,
        owed_since=now,
    )
    return Digest(new_send_id(), channel.name, now, [item])

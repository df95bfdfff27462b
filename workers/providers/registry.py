"""Settings into adapters."""

from collections.abc import Callable, Iterator, Sequence
from uuid import UUID

from shared.accounts import TWILIO_CALLBACK_PATH, UNCONFIGURED, missing_settings, plain
from shared.domain.outcome import Configuration, Outcome, Scope
from shared.domain.proof import Nothing, Proof, Unprovable
from shared.settings import Settings
from workers.providers.acs import AcsConfig, AcsProvider
from workers.providers.ches import ChesProvider
from workers.providers.ches_token import ChesConfig
from workers.providers.protocol import Message, Provider
from workers.providers.sandbox import Kept, SandboxConfig, SandboxProvider
from workers.providers.smtp import SmtpProvider
from workers.providers.smtp_session import SmtpConfig
from workers.providers.twilio import TwilioConfig, TwilioProvider


class UnconfiguredProvider:
    """Stands where a provider's settings are missing: makes no call, each message waits for a person."""

    credential = UNCONFIGURED
    resolution = Nothing()

    def __init__(self, name: str, missing: Sequence[str]) -> None:
        self.name = name
        self._outcome = Configuration(Scope.PROVIDER, "not_configured", f"not set: {', '.join(missing)}")

    def send(self, messages: Sequence[Message]) -> Iterator[tuple[int, Outcome] | None]:
        """Answer each message with what is missing."""
        for index in range(len(messages)):
            yield index, self._outcome

    def cut(self) -> None:
        """Every answer comes at once anyway."""

    def prove(self, messages: Sequence[Message]) -> Iterator[tuple[int, Proof] | None]:
        """Nobody can be asked."""
        for index in range(len(messages)):
            yield index, Unprovable(self._outcome.detail, asked=False)

    def close(self) -> None:
        """Nothing is open."""


def build_provider(
    name: str,
    settings: Settings,
    *,
    keep: Callable[[Sequence[Message]], None],
    find: Callable[[Sequence[UUID]], Kept],
) -> Provider:
    """
    Make the calling thread's adapter.

    `keep` is where the sandbox puts messages, `find` where it looks for them. A provider that lacks settings
    comes as one that answers every message with Configuration and makes no call.
    """
    missing = missing_settings(name, settings)
    if missing:
        return UnconfiguredProvider(name, missing)
    match name:
        case "ches":
            return ChesProvider(_ches(settings))
        case "smtp":
            return SmtpProvider(_smtp(settings))
        case "twilio":
            return TwilioProvider(_twilio(settings))
        case "acs":
            return AcsProvider(_acs(settings))
        case _:
            return SandboxProvider(SandboxConfig(latency_ms=settings.sandbox_latency_ms), keep=keep, find=find)


def _ches(settings: Settings) -> ChesConfig:
    return ChesConfig(
        base_url=plain(settings, "ches_base_url"),
        token_url=plain(settings, "ches_token_url"),
        client_id=plain(settings, "ches_client_id"),
        client_secret=plain(settings, "ches_client_secret"),
        timeout_ms=settings.ches_timeout_ms,
        connect_timeout_ms=settings.ches_connect_timeout_ms,
    )


def _smtp(settings: Settings) -> SmtpConfig:
    return SmtpConfig(
        host=plain(settings, "smtp_host"),
        port=settings.smtp_port,
        security=settings.smtp_security,
        username=settings.smtp_username,
        password=plain(settings, "smtp_password") or None,
        ca_file=settings.smtp_ca_file,
        connect_timeout_ms=settings.smtp_connect_timeout_ms,
        timeout_ms=settings.smtp_timeout_ms,
        final_dot_timeout_ms=settings.smtp_final_dot_timeout_ms,
        connections_per_process=settings.smtp_connections_per_process,
        message_id_domain=settings.message_id_domain,
    )


def _twilio(settings: Settings) -> TwilioConfig:
    callback = settings.public_url.rstrip("/") + TWILIO_CALLBACK_PATH if settings.public_url else None
    return TwilioConfig(
        account_sid=plain(settings, "twilio_account_sid"),
        auth_token=plain(settings, "twilio_auth_token"),
        sender=settings.twilio_from,
        messaging_service_sid=settings.twilio_messaging_service_sid,
        status_callback_url=callback,
        base_url=settings.twilio_base_url,
        timeout_ms=settings.twilio_timeout_ms,
    )


def _acs(settings: Settings) -> AcsConfig:
    return AcsConfig(
        endpoint=plain(settings, "acs_endpoint"),
        access_key=plain(settings, "acs_access_key"),
        sender=plain(settings, "acs_from"),
        timeout_ms=settings.acs_timeout_ms,
        reports=settings.acs_webhook_secret is not None,
    )

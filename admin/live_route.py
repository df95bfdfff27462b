"""Where live messages of a channel go with these settings, in words for the person who set them."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from shared.accounts import missing_settings, provider_name
from shared.domain.states import Channel, Mode
from shared.settings import Settings

_WORDS = {Channel.EMAIL: "e-mail", Channel.SMS: "SMS"}


@dataclass(frozen=True, slots=True)
class LiveRoute:
    """`host` is that of a real provider, empty for the sandbox and for none; `missing` are variables it lacks."""

    channel: Channel
    provider: str
    host: str
    missing: tuple[str, ...]

    @property
    def is_real(self) -> bool:
        """Whether messages leave this installation."""
        return self.provider not in {"sandbox", "none"}

    @property
    def words(self) -> str:
        """One sentence without its full stop."""
        subject = f"Live {_WORDS[self.channel]}"
        if self.provider == "none":
            return f"{subject} goes nowhere and waits: {self.channel.value.upper()}_PROVIDER is none"
        if self.provider == "sandbox":
            return f"{subject} stays in the sandbox's inbox: nothing leaves this installation"
        return f"{subject} goes to {self.provider} at {self.host or 'no host yet'}, and from there to real people"

    @property
    def warning(self) -> str:
        """What a half-configured provider lacks; empty where there is nothing to warn of."""
        if not self.is_real or not self.missing:
            return ""
        return (
            f"{self.provider} takes live {_WORDS[self.channel]} and is not set up: {', '.join(self.missing)} "
            f"{'is' if len(self.missing) == 1 else 'are'} missing. What is sent waits until then"
        )


def live_routes(settings: Settings) -> list[LiveRoute]:
    """One for each channel."""
    return [_route(settings, channel) for channel in Channel]


def _route(settings: Settings, channel: Channel) -> LiveRoute:
    name = provider_name(settings, channel, Mode.LIVE)
    match name:
        case "smtp":
            host = f"{settings.smtp_host}:{settings.smtp_port}" if settings.smtp_host else ""
        case "ches":
            host = _host(settings.ches_base_url)
        case "twilio":
            host = _host(settings.twilio_base_url)
        case "acs":
            host = _host(settings.acs_endpoint)
        case _:
            host = ""
    return LiveRoute(channel, name, host, missing_settings(name, settings))


def _host(url: str | None) -> str:
    return urlsplit(url or "").netloc

"""
Which provider a channel's messages go to, whether it is set up, and under which account.

Provider and account name a circuit, a gate and a cap; senders, recovery and the books must agree on them.
"""

import hashlib

from shared.domain import resolutions
from shared.domain.proof import Resolution, first_look_s
from shared.domain.states import Channel, Mode
from shared.settings import Settings

#: Where Twilio reports deliveries, below PUBLIC_URL.
TWILIO_CALLBACK_PATH = "/api/v1/receipts/twilio"

#: The account of a provider whose settings are missing.
UNCONFIGURED = "unconfigured"

#: What each provider cannot do without; of an inner tuple any one is enough.
_NEEDS: dict[str, tuple[str | tuple[str, ...], ...]] = {
    "sandbox": (),
    "ches": ("ches_base_url", "ches_token_url", "ches_client_id", "ches_client_secret"),
    "smtp": ("smtp_host",),
    "twilio": ("twilio_account_sid", "twilio_auth_token", ("twilio_from", "twilio_messaging_service_sid")),
    "acs": ("acs_endpoint", "acs_access_key", "acs_from"),
}
_FOR_CHANNEL = {"none": "EMAIL_PROVIDER or SMS_PROVIDER"}


def provider_name(settings: Settings, channel: Channel, mode: Mode) -> str:
    """A test key's sends go to the sandbox, whatever is configured."""
    if mode is Mode.TEST:
        return "sandbox"
    return settings.email_provider if channel is Channel.EMAIL else settings.sms_provider


def missing_settings(name: str, settings: Settings) -> tuple[str, ...]:
    """Name the settings that the provider lacks, as environment variables; empty where it is ready."""
    if name not in _NEEDS:
        return (_FOR_CHANNEL.get(name, f"a provider called {name}"),)
    missing = []
    for need in _NEEDS[name]:
        choices = (need,) if isinstance(need, str) else need
        if not any(plain(settings, choice) for choice in choices):
            missing.append(" or ".join(choice.upper() for choice in choices))
    if name == "smtp" and settings.smtp_username and not plain(settings, "smtp_password"):
        missing.append("SMTP_PASSWORD")
    return tuple(missing)


def credential_of(settings: Settings, name: str) -> str:
    """
    Name the account of a provider without revealing it.

    The adapters compute the same from their own configuration; a test holds the two together.
    """
    if missing_settings(name, settings):
        return UNCONFIGURED
    match name:
        case "ches":
            account = f"{settings.ches_base_url} {settings.ches_client_id}"
        case "smtp":
            account = f"{settings.smtp_username or ''}@{settings.smtp_host}:{settings.smtp_port}"
        case "twilio":
            account = f"{settings.twilio_base_url} {settings.twilio_account_sid}"
        case "acs":
            account = str(settings.acs_endpoint)
        case _:
            return name
    return hashlib.sha256(account.encode()).hexdigest()[:12]


def accounts_in_use(settings: Settings) -> list[tuple[str, str]]:
    """Each provider that these settings use, with its account, by name."""
    names = {provider_name(settings, channel, mode) for channel in Channel for mode in Mode}
    return [(name, credential_of(settings, name)) for name in sorted(names)]


def resolution_of(settings: Settings, name: str) -> Resolution:
    """How an unknown outcome of a provider can be found out; its adapter declares the same."""
    match name:
        case "ches":
            return resolutions.ches(settings.ches_timeout_ms / 1_000)
        case "twilio":
            return resolutions.TWILIO
        case "acs":
            return resolutions.acs(reports=settings.acs_webhook_secret is not None)
        case "sandbox":
            return resolutions.SANDBOX
        case _:
            return resolutions.SMTP


def first_looks_s(settings: Settings) -> dict[str, float]:
    """
    Seconds after a worker's death at which its calls are looked at, by provider.

    Where nothing can be found out, the look is for the evidence, at once.
    """
    return {name: first_look_s(resolution_of(settings, name)) or 0.0 for name in _NEEDS}


def cap_of(settings: Settings, name: str) -> int:
    """Calls in flight that the provider may be given over all processes; 0: no cap."""
    return int(getattr(settings, f"{name}_max_concurrent_requests", 0))


def plain(settings: Settings, name: str) -> str:
    """Give a setting as text, a secret uncovered; "" where it is not set."""
    value = getattr(settings, name)
    if value is None:
        return ""
    return str(value.get_secret_value()) if hasattr(value, "get_secret_value") else str(value)

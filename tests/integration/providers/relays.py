"""A provider that speaks to a scripted relay with little patience, and its outcomes without their words."""

from dataclasses import replace

from shared.domain.outcome import (
    Ambiguous,
    Configuration,
    Outcome,
    Permanent,
    Suppressed,
    Throttled,
    Transient,
)
from tests.integration.providers.messages import email_message, send_all
from tests.support.scripted_smtp import ScriptedSmtp
from workers.providers.smtp import SmtpProvider
from workers.providers.smtp_session import SmtpConfig


def config_for(relay: ScriptedSmtp) -> SmtpConfig:
    return SmtpConfig(
        host="127.0.0.1",
        port=relay.port,
        security="none",
        connect_timeout_ms=400,
        timeout_ms=400,
        final_dot_timeout_ms=400,
        connections_per_process=4,
        message_id_domain="mail.example.com",
    )


def send_one(provider: SmtpProvider, to: str = "person@example.com") -> Outcome:
    return send_all(provider, [email_message(to)])[0]


def bare(outcome: Outcome) -> Outcome:
    match outcome:
        case Ambiguous():
            return replace(outcome, detail="", evidence={})
        case Transient() | Throttled() | Permanent() | Configuration() | Suppressed():
            return replace(outcome, detail="")
        case _:
            return outcome

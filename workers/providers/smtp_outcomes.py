"""
What a relay's answer, or the loss of the connection, means at each stage. Pure.

The first rule that fits decides: rules are tried from the top. Before the final dot nothing was accepted;
after it only an answer proves anything.

Sources: RFC 5321 §4.2, RFC 3463 and IANA's registry of enhanced status codes, RFC 4954 §6, RFC 6647
(greylisting); the sentences of Amazon SES from its "SMTP response codes" page.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from shared.domain.outcome import Ambiguous, Configuration, Outcome, Permanent, Scope, Suppressed, Throttled, Transient
from workers.providers.smtp_session import Reply, SmtpLost, Stage

#: seconds to wait when a daily quota is used up; it refills in the course of hours.
_DAILY_QUOTA_WAIT_S = 3_600.0

_Make = Callable[[str, str], Outcome]


def _transient(scope: Scope) -> _Make:
    return lambda code, detail: Transient(scope, code, detail)


def _permanent(scope: Scope) -> _Make:
    return lambda code, detail: Permanent(scope, code, detail)


def _configuration(scope: Scope) -> _Make:
    return lambda code, detail: Configuration(scope, code, detail)


def _throttled(code: str, detail: str) -> Outcome:
    return Throttled(code, detail)


def _throttled_for_long(code: str, detail: str) -> Outcome:
    return Throttled(code, detail, retry_after_s=_DAILY_QUOTA_WAIT_S)


def _suppressed(code: str, detail: str) -> Outcome:
    return Suppressed(code, detail)


@dataclass(frozen=True, slots=True)
class Rule:
    """`code`, `enhanced` match from the start of "550" and "5.1.1"; `text` anywhere, any case. "" fits all."""

    stages: frozenset[Stage]
    code: str
    enhanced: str
    text: str
    make: _Make

    def fits(self, stage: Stage, reply: Reply) -> bool:
        """Whether the rule speaks about this answer."""
        return (
            stage in self.stages
            and re.match(self.code, str(reply.code)) is not None
            and re.match(self.enhanced, reply.enhanced) is not None
            and re.search(self.text, reply.text, re.IGNORECASE) is not None
        )


_OPENING = frozenset({Stage.CONNECT, Stage.GREETING, Stage.EHLO})
_TLS = frozenset({Stage.STARTTLS})
_AUTH = frozenset({Stage.AUTH})
_MAIL = frozenset({Stage.MAIL})
_RCPT = frozenset({Stage.RCPT})
_DATA = frozenset({Stage.DATA, Stage.CONTENT})
_DOT = frozenset({Stage.DOT})
_ANY = frozenset(Stage)
_ABOUT_RATE = r"too many|rate limit|sending rate|throttl|slow down|try again later.*limit"
_ABOUT_SUPPRESSION = r"suppress|unsubscribed|opted.?out|recipient.{0,20}(block|black)|(block|black)listed recipient"

RULES: tuple[Rule, ...] = (
    # Told to slow down, whatever the stage.
    Rule(_ANY, "4", "", r"daily (message |sending )?quota", _throttled_for_long),
    Rule(_ANY - _RCPT - _AUTH - _TLS, "4", "", _ABOUT_RATE, _throttled),
    Rule(_ANY - _AUTH - _TLS, "421", r"4\.7", "", _throttled),
    Rule(_MAIL, "45[01]", r"4\.7", "", _throttled),
    Rule(_MAIL, "452", r"4\.3\.1", "", _throttled),
    Rule(_RCPT, "452", r"4\.5\.3", "", _throttled),
    Rule(_RCPT, "55[02]", r"5\.5\.3|$", "too many recipients", _throttled),
    # The relay is going away.
    Rule(_ANY, "421", "", "", _transient(Scope.PROVIDER)),
    # We are not wanted, cannot be secured, or do not authenticate.
    Rule(_OPENING | _TLS | _AUTH, "4", "", "", _transient(Scope.PROVIDER)),
    Rule(_OPENING | _TLS | _AUTH, "5", "", "", _configuration(Scope.PROVIDER)),
    Rule(_MAIL | _RCPT | _DATA, "530|534|535|538", "", "", _configuration(Scope.PROVIDER)),
    # This message.
    Rule(_MAIL | _RCPT | _DATA | _DOT, "5", r"5\.3\.4", "", _permanent(Scope.MESSAGE)),
    # This sender.
    Rule(_MAIL, "4", "", "", _transient(Scope.PROVIDER)),
    Rule(_MAIL, "552", "", "size|too (big|large)", _permanent(Scope.MESSAGE)),
    Rule(_MAIL, "5", "", "", _configuration(Scope.SENDER)),
    # This recipient.
    Rule(_RCPT | _DOT, "5", "", _ABOUT_SUPPRESSION, _suppressed),
    Rule(_RCPT, "4", r"4\.3", "", _transient(Scope.PROVIDER)),
    Rule(_RCPT, "4", "", "", _transient(Scope.RECIPIENT)),
    Rule(_RCPT, "5", "", "", _permanent(Scope.RECIPIENT)),
    Rule(_DOT, "5", r"5\.[12]\.", "", _permanent(Scope.RECIPIENT)),
    # The content, or what the relay can do with it now.
    Rule(_DATA | _DOT, "4", "", "", _transient(Scope.PROVIDER)),
    Rule(_DATA | _DOT, "5", "", "", _permanent(Scope.MESSAGE)),
)


def outcome_of_reply(stage: Stage, reply: Reply) -> Outcome:
    """Say what an answer means that stopped the conversation at `stage`."""
    code = f"smtp_{stage}_{reply.enhanced or reply.code}"
    for rule in RULES:
        if rule.fits(stage, reply):
            return rule.make(code, reply.text)
    if stage is Stage.DOT:
        return Ambiguous("smtp_dot_unreadable", reply.text, evidence={"stage": str(stage), "reply": str(reply.code)})
    return Transient(Scope.PROVIDER, f"smtp_{stage}_unreadable", reply.text)


def outcome_of_loss(lost: SmtpLost) -> Outcome:
    """Say what the loss of the connection means: only after the final dot may the message be accepted."""
    kind = "timeout" if lost.timed_out else "lost"
    if lost.insecure:
        return Configuration(Scope.PROVIDER, f"smtp_{lost.stage}_tls", lost.reason)
    if lost.stage is Stage.DOT:
        evidence = {"stage": str(lost.stage), "reason": lost.reason}
        return Ambiguous(
            f"smtp_dot_{kind}", lost.reason, timed_out=lost.timed_out, provider_failed=True, evidence=evidence
        )
    return Transient(Scope.PROVIDER, f"smtp_{lost.stage}_{kind}", lost.reason, timed_out=lost.timed_out)


def is_relay_denied(stage: Stage, reply: Reply) -> bool:
    """Whether the relay refuses to carry mail for us to this recipient; for many recipients it is our setup."""
    return stage is Stage.RCPT and reply.code in {550, 554} and reply.enhanced == "5.7.1"

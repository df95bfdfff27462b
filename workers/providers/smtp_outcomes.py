"""
What a relay's answer, or the loss of the connection, means at each stage. Pure.

The first rule that fits decides: rules are tried from the top. Before the final dot nothing was accepted;
after it only an answer proves anything.

Sources: RFC 5321 §4.2, RFC 3463 and IANA's registry of enhanced status codes, RFC 4954 §6, RFC 6647
(greylisting); the sentences of Amazon SES from its "SMTP response codes" page, of SparkPost on suppressed
addresses from its "suppression lists" page; of refused relaying as each server's source or manual has them.
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
#: Of the recipient alone: "blocked", of whom it does not say, is mostly said of us or of the message.
_ABOUT_SUPPRESSION = (
    r"suppression list|unsubscribed|opted.?out|"
    r"(address|recipient|mailbox)( is| was| has been)? suppressed|suppressed (address|recipient)|"
    r"recipient( address)? (is |was |has been )?(block|black)listed|(block|black)listed (address|recipient)|"
    r"recipient( address)? is on (a|our|the) (block|black) ?list"
)
#: The words of Postfix, Sendmail, Exim, Exchange, qmail, MailEnable, cPanel and others. A host may be called "relay".
_ABOUT_RELAYING = (
    r"\brelay(ing)?( access)?( is| was)? (denied|disallowed|forbidden|prohibited|refused|rejected)|"
    r"\brelay(ing)?( is)? not (allowed|authori[sz]ed|permitted)|"
    r"\b(unable|not (able|allowed|authori[sz]ed|configured|permitted)) to relay\b|"
    r"\b(do(es)?|will) not relay\b|\bno relaying\b|not an open relay|not a gateway|"
    r"allowed rcpthosts|"
    r"requires authentication when|authentication (is )?required|must (first )?authenticate"
)
_ABOUT_THE_RECIPIENT = r"recipient|mailbox|\buser\b|no such|unknown|not exist|invalid"

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


def may_be_relay_denial(stage: Stage, reply: Reply, outcome: Outcome) -> bool:
    """
    Whether the relay may have refused to carry mail of ours at all; for many recipients it is our setup.

    It says so in words, with any code, or with a 5.7.1 that does not speak of the recipient. Not where it reports what
    another server said of the mailbox (5.1.x, 5.2.x). Postfix may defer in the same words (454 4.7.1).
    """
    if (
        stage is not Stage.RCPT
        or not isinstance(outcome, Permanent | Transient)
        or outcome.scope is not Scope.RECIPIENT
    ):
        return False
    if re.search(_ABOUT_RELAYING, reply.text, re.IGNORECASE):
        return re.match(r"[45]\.[12]\.", reply.enhanced) is None
    bare_denial = reply.code in {550, 554} and reply.enhanced == "5.7.1"
    return bare_denial and re.search(_ABOUT_THE_RECIPIENT, reply.text, re.IGNORECASE) is None

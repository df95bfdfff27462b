"""
E-mail through any SMTP relay: one message per recipient over kept connections.

All instances of a process that use the same relay share one pool of threads, each with its own connection.
A connection that the relay closed while it was idle is replaced and the message sent over the new one.
"""

import hashlib
import queue
import re
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from shared.domain import resolutions
from shared.domain.outcome import Accepted, Ambiguous, Configuration, NotAttempted, Outcome, Permanent, Scope
from shared.domain.proof import Proof, Unprovable
from workers.providers.http_engine import GLANCE_S
from workers.providers.mime import Envelope, UnsendableAddressError, dot_stuffed, envelope_of, message_id_of
from workers.providers.protocol import EmailMessage, Message
from workers.providers.smtp_denials import Denials
from workers.providers.smtp_outcomes import may_be_relay_denial, outcome_of_loss, outcome_of_reply
from workers.providers.smtp_session import Reply, SmtpConfig, SmtpFailure, SmtpLost, SmtpSession, Stage

#: seconds after which an idle connection is not used again; relays seen close at 60 s (SES) to 300 s (Postfix).
_IDLE_LIMIT_S = 30.0
#: messages after which a connection is replaced, below the limits per connection of common relays (100).
_MESSAGES_PER_CONNECTION = 100

#: How relays name what they took, best first: Postfix, Sendmail and Exim, then SES and others ("Ok <id>").
_QUEUE_IDS = (
    re.compile(r"queued as <?([^\s>;,]+)", re.IGNORECASE),
    re.compile(r"\bid=<?([^\s>;,]+)", re.IGNORECASE),
    re.compile(r"^(?:\d\.\d+\.\d+ )?ok:? <?([^\s>;,]+)>?$", re.IGNORECASE),
)


@dataclass(slots=True)
class _Job:
    index: int
    envelope: Envelope
    start_by: float
    answers: "queue.SimpleQueue[tuple[int, Outcome]]"
    cancelled: bool = False
    #: Taken by the thread right before the final dot, or by the caller who cuts it before: never by both.
    turn: threading.Lock = field(default_factory=threading.Lock)


class _Pool:
    """Threads that each keep one connection to one relay; grows with the work up to its limit."""

    def __init__(self, config: SmtpConfig) -> None:
        self._config = config
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0
        self._denials = Denials(time.monotonic)
        self.users = 0

    def submit(self, job: _Job) -> None:
        with self._lock:
            if self._idle > 0:
                self._idle -= 1
            elif self._threads < self._config.connections_per_process:
                # A daemon: a hung relay must not hold up the end of the process.
                threading.Thread(target=self._work, name=f"smtp-{self._threads + 1}", daemon=True).start()
                self._threads += 1  # and not before: it may not start
        self._jobs.put(job)

    def end(self) -> None:
        """Let every thread say QUIT and end once its work is done."""
        with self._lock:
            for _ in range(self._threads):
                self._jobs.put(None)
            self._threads = self._idle = 0

    def _work(self) -> None:
        try:
            self._serve_jobs()
        except BaseException:
            with self._lock:  # a bug ends this thread, not the pool
                self._threads = max(0, self._threads - 1)
            raise

    def _serve_jobs(self) -> None:
        session: SmtpSession | None = None
        while True:
            try:
                job = self._jobs.get(timeout=_IDLE_LIMIT_S if session else None)
            except queue.Empty:
                if session:
                    session.quit()
                session = None
                continue
            if job is None:
                if session:
                    session.quit()
                return
            if job.cancelled or time.monotonic() > job.start_by:
                job.answers.put((job.index, NotAttempted("no connection to the relay was free in time")))
            else:
                session = self._deliver(session, job)
            with self._lock:
                self._idle = min(self._idle + 1, self._threads)

    def _deliver(self, session: SmtpSession | None, job: _Job) -> SmtpSession | None:
        """Deliver one message; gives the connection to keep, if any."""
        if session and (session.delivered >= _MESSAGES_PER_CONNECTION or session.is_stale(_IDLE_LIMIT_S)):
            session.quit()
            session = None
        outcome: Outcome = Ambiguous("smtp_interrupted", "the sending thread broke off")
        try:
            session, outcome = self._converse(session, job)
            if session is None and outcome is _CLOSED_WHILE_IDLE:
                session, outcome = self._converse(None, job)
        finally:
            job.answers.put((job.index, outcome))
        return session

    def _converse(self, session: SmtpSession | None, job: _Job) -> tuple[SmtpSession | None, Outcome]:
        config, envelope, reused = self._config, job.envelope, session is not None
        try:
            if session is None:
                session = SmtpSession(config, time.monotonic() + config.connect_timeout_ms / 1_000)
            unable = _unable(session, envelope)
            if unable is not None:
                return session, unable
            ends_at = time.monotonic() + 2 * config.timeout_ms / 1_000
            content = dot_stuffed(envelope.content)
            reply = session.deliver(
                envelope.sender,
                envelope.recipient,
                content,
                ends_at=ends_at,
                smtputf8=envelope.needs_smtputf8,
                may_end=lambda: job.turn.acquire(blocking=False),
            )
        except SmtpFailure as failure:
            return self._after_failure(session, failure, envelope, reused=reused)
        except SmtpLost as lost:
            if session:
                session.drop()
            if reused and lost.stage is Stage.MAIL and not lost.timed_out:
                return None, _CLOSED_WHILE_IDLE
            return None, outcome_of_loss(lost)
        if reply is None:
            session.drop()
            return None, NotAttempted("draining")
        self._denials.forget()
        return session, Accepted(_queue_id(reply))

    def _after_failure(
        self, session: SmtpSession | None, failure: SmtpFailure, envelope: Envelope, *, reused: bool
    ) -> tuple[SmtpSession | None, Outcome]:
        stage, reply = failure.stage, failure.reply
        outcome = outcome_of_reply(stage, reply)
        usable = session is not None and reply.code not in {-1, 421} and stage is not Stage.CONTENT
        if session and not (usable and session.reset()):
            session.drop()
            session = None
        if reused and stage is Stage.MAIL and reply.code == 421:  # noqa: PLR2004  # "closing", RFC 5321 §3.8
            return None, _CLOSED_WHILE_IDLE
        if may_be_relay_denial(stage, reply, outcome) and self._denials.note(envelope.recipient, reply.text):
            outcome = Configuration(Scope.PROVIDER, "smtp_relay_denied", reply.text)
        return session, outcome


#: What stands between a stale connection and the second try over a fresh one; never leaves this module.
_CLOSED_WHILE_IDLE = NotAttempted("the relay closed the idle connection")

_pools: dict[SmtpConfig, _Pool] = {}
_pools_lock = threading.Lock()


class SmtpProvider:
    """The adapter; instances of one process share the connections to a relay."""

    name = "smtp"
    resolution = resolutions.SMTP

    def __init__(self, config: SmtpConfig) -> None:
        self._config = config
        account = f"{config.username or ''}@{config.host}:{config.port}"
        self.credential = hashlib.sha256(account.encode()).hexdigest()[:12]
        with _pools_lock:
            self._pool = _pools.setdefault(config, _Pool(config))
            self._pool.users += 1
        self._is_open = True
        self._stopped = False

    def send(self, messages: Sequence[Message]) -> Iterator[tuple[int, Outcome] | None]:
        """
        Deliver each message in a transaction of its own, as many at a time as there are connections.

        Closing the iterator drops what has not begun; a conversation under way is led to its end unheard.
        """
        answers: queue.SimpleQueue[tuple[int, Outcome]] = queue.SimpleQueue()
        envelopes = [_envelope(message, self._config) for message in messages]
        start_by = time.monotonic() + self._config.timeout_ms / 1_000
        jobs = []
        for index, envelope in enumerate(envelopes):
            if isinstance(envelope, Envelope):
                jobs.append(_Job(index, envelope, start_by, answers))
            else:
                answers.put((index, envelope))
        try:
            for job in jobs:
                self._pool.submit(job)
            left = len(messages)
            jobs_left = {job.index: job for job in jobs}
            while left:
                try:
                    index, outcome = answers.get(timeout=0 if self._stopped else GLANCE_S)
                    left -= 1
                    jobs_left.pop(index, None)
                    yield index, self._with_evidence(outcome, messages[index])
                except queue.Empty:
                    if self._stopped:
                        yield from self._cut_off(jobs_left.values(), messages)
                        return
                    yield None
        finally:
            for job in jobs:
                job.cancelled = True

    def cut(self) -> None:
        """See `Provider.cut`. Without its final dot a message was not sent; with it, the answer comes unheard."""
        self._stopped = True

    def _cut_off(self, jobs: Iterable[_Job], messages: Sequence[Message]) -> Iterator[tuple[int, Outcome]]:
        for job in jobs:
            if job.turn.acquire(blocking=False):
                yield job.index, NotAttempted("draining")
            else:
                lost = Ambiguous("call_cut", "the process had to stop before the relay's answer came")
                yield job.index, self._with_evidence(lost, messages[job.index])

    def prove(self, messages: Sequence[Message]) -> Iterator[tuple[int, Proof] | None]:
        """No relay tells what it took: give what its log can be searched by."""
        for index, message in enumerate(messages):
            evidence = self._evidence(message)
            yield index, Unprovable("a relay does not tell what it took; its log may", evidence, asked=False)

    def _with_evidence(self, outcome: Outcome, message: Message) -> Outcome:
        if not isinstance(outcome, Ambiguous):
            return outcome
        return replace(outcome, evidence={**outcome.evidence, **self._evidence(message)})

    def _evidence(self, message: Message) -> dict[str, str]:
        evidence = {"relay": f"{self._config.host}:{self._config.port}"}
        with suppress(UnsendableAddressError):
            # Without its domain: whole it has the form of an address, and would be masked wherever it is kept or shown.
            whole = message_id_of(message, self._config.message_id_domain)
            evidence["message_id"] = whole.removeprefix("<").partition("@")[0]
        return evidence

    def close(self) -> None:
        """Let go of the connections; the last instance of the process to do so closes them."""
        if not self._is_open:
            return
        self._is_open = False
        with _pools_lock:
            self._pool.users -= 1
            if self._pool.users == 0:
                _pools.pop(self._config, None)
                self._pool.end()


def _envelope(message: Message, config: SmtpConfig) -> Envelope | Outcome:
    if not isinstance(message, EmailMessage):
        raise TypeError("SMTP sends e-mail only")
    try:
        return envelope_of(message, message_id_domain=config.message_id_domain)
    except UnsendableAddressError as error:
        if str(error) == "recipient":
            return Permanent(
                Scope.RECIPIENT, "unsendable_recipient", "the recipient's address cannot be put on the wire"
            )
        return Configuration(
            Scope.SENDER, "unsendable_sender", "the sender's or reply address cannot be put on the wire"
        )


def _unable(session: SmtpSession, envelope: Envelope) -> Outcome | None:
    """Say what the relay has announced that it cannot do with this message."""
    if envelope.needs_smtputf8 and "SMTPUTF8" not in session.extensions:
        return Permanent(Scope.RECIPIENT, "smtp_no_smtputf8", "the relay takes only ASCII before the @")
    limit = session.extensions.get("SIZE", "")
    if limit.isdecimal() and 0 < int(limit) < len(envelope.content):
        return Permanent(Scope.MESSAGE, "smtp_too_big", f"the relay takes {limit} bytes at most")
    return None


def _queue_id(reply: Reply) -> str | None:
    found = next((match for pattern in _QUEUE_IDS if (match := pattern.search(reply.text))), None)
    return found[1][:200] if found else None

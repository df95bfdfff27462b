"""
One connection to an SMTP relay, driven command by command, with the stage always known.

Python's smtplib raises the same exception for a lost connection at every stage and bounds each read, not
the whole answer; whether the final dot had left decides between "surely not sent" and "maybe sent", so the
few commands needed are spoken here. Nothing is pipelined.

Source: RFC 5321, RFC 3207 (STARTTLS), RFC 4954 (AUTH), RFC 1870 (SIZE), RFC 6531 (SMTPUTF8).
"""

import contextlib
import re
import select
import socket
import ssl
import time
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

import certifi

from workers.providers.name_lookup import addresses_of

#: octets of one answer, all its lines; RFC 5321 §4.5.3.1.5 allows 512 a line.
_ANSWER_CAP = 65_536
#: seconds the answer to QUIT is waited for.
_QUIT_WAIT_S = 0.5
#: A peer that leaves during the handshake, with or without saying so. Which of them it is differs between Python
#: releases: SSLZeroReturnError in 3.11.2 where later ones say SSLEOFError.
_HANDSHAKE_CUT = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
_LINE = re.compile(rb"(\d{3})([ -]?)(.*)")
_ENHANCED = re.compile(r"([245]\.\d{1,3}\.\d{1,3})(?:\s|$)")


class Stage(StrEnum):
    """Where the conversation is; the names are part of failure codes."""

    CONNECT = "connect"
    GREETING = "greeting"
    EHLO = "ehlo"
    STARTTLS = "starttls"
    AUTH = "auth"
    MAIL = "mail"
    RCPT = "rcpt"
    DATA = "data"
    CONTENT = "content"
    DOT = "dot"


@dataclass(frozen=True, slots=True, kw_only=True)
class SmtpConfig:
    """
    A relay. `security`: "starttls" is required and never falls back to clear text, "tls" from the first byte.

    Times in milliseconds: to connect and be greeted; of one command; of the answer to the final dot.
    `ca_file` names the authorities trusted in place of the public ones.
    """

    host: str
    port: int
    security: Literal["starttls", "tls", "none"]
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    connect_timeout_ms: int = 10_000
    timeout_ms: int = 60_000
    final_dot_timeout_ms: int = 300_000
    connections_per_process: int = 20
    message_id_domain: str | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer. `code` is -1 where it was not SMTP; `enhanced` is like "4.7.1" or "" (RFC 3463)."""

    code: int
    enhanced: str
    text: str


class SmtpFailure(Exception):  # noqa: N818  # it carries an answer, it is not an error of ours
    """The relay answered something other than what lets the conversation go on."""

    def __init__(self, stage: Stage, reply: Reply) -> None:
        super().__init__(f"{stage} was answered {reply.code}")
        self.stage = stage
        self.reply = reply


class SmtpLost(Exception):  # noqa: N818
    """The connection was lost, timed out, or could not be made or secured, at `stage`."""

    def __init__(self, stage: Stage, reason: str, *, timed_out: bool = False, insecure: bool = False) -> None:
        super().__init__(reason)
        self.stage = stage
        self.reason = reason
        self.timed_out = timed_out
        #: TLS could not be had or trusted: a matter of configuration.
        self.insecure = insecure


class SmtpSession:
    """
    A connection, greeted, secured and authenticated when the constructor returns.

    Raises SmtpFailure and SmtpLost from the constructor and `deliver`. After SmtpLost it must be dropped.
    """

    def __init__(self, config: SmtpConfig, ends_at: float) -> None:
        self._config = config
        self._ends_at = ends_at
        self._buffer = b""
        self._socket: socket.socket | None = None
        self.extensions: dict[str, str] = {}
        self.stage = Stage.CONNECT
        self.last_used = time.monotonic()
        self.delivered = 0
        try:
            self._open()
        except BaseException:
            self.drop()
            raise

    def deliver(
        self,
        sender: str,
        recipient: str,
        stuffed: bytes,
        *,
        ends_at: float,
        smtputf8: bool,
        may_end: Callable[[], bool],
    ) -> Reply | None:
        """
        Hand over one message to one recipient; gives the answer to the final dot, a 2xx.

        `stuffed` is ready for the wire and ends in CRLF. `ends_at` bounds everything before the final dot. `may_end` is
        asked right before the dot: where it says no, nothing was sent, None is given, and the session must be dropped.
        """
        self._ends_at = ends_at
        options = f" SIZE={len(stuffed)}" if "SIZE" in self.extensions else ""
        if smtputf8:
            options += " SMTPUTF8 BODY=8BITMIME"
        self._expect(Stage.MAIL, f"MAIL FROM:<{sender}>{options}", 2)
        self._expect(Stage.RCPT, f"RCPT TO:<{recipient}>", 2)
        self._expect(Stage.DATA, "DATA", 3)
        self.stage = Stage.CONTENT
        self._write(stuffed)
        # A relay that already spoke or left did not wait for the dot; without the dot nothing is accepted.
        if self._buffer or self._readable():
            reply = self._read_reply(self._seconds_left(self._ends_at))
            raise SmtpFailure(self.stage, reply)
        if not may_end():
            return None
        try:
            self._write(b".\r\n")
        except SmtpLost as lost:
            if lost.timed_out:  # over TLS a part of the record may be on its way
                lost.stage = Stage.DOT
            raise
        self.stage = Stage.DOT
        reply = self._read_reply(self._config.final_dot_timeout_ms / 1_000)
        self.last_used = time.monotonic()
        if reply.code // 100 != 2:  # noqa: PLR2004  # the first digit of an SMTP reply
            raise SmtpFailure(Stage.DOT, reply)
        self.delivered += 1
        return reply

    def reset(self) -> bool:
        """Clear a refused transaction; False where the connection is of no more use."""
        try:
            self._expect(Stage.MAIL, "RSET", 2)
        except (SmtpFailure, SmtpLost):
            return False
        return True

    def is_stale(self, idle_limit_s: float) -> bool:
        """Whether the relay has closed, spoken out of turn, or been left alone for longer than the limit."""
        return self._socket is None or time.monotonic() - self.last_used > idle_limit_s or self._readable()

    def quit(self) -> None:
        """Say QUIT, whatever comes of it, and close: what was accepted stays accepted."""
        with contextlib.suppress(SmtpLost, SmtpFailure):
            self._ends_at = time.monotonic() + _QUIT_WAIT_S
            self._write(b"QUIT\r\n")
            # Closing with the answer unread would reset the connection under a relay that is still logging.
            self._read_reply(_QUIT_WAIT_S)
        self.drop()

    def drop(self) -> None:
        """Close at once."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
            self._socket = None

    def _open(self) -> None:
        config = self._config
        self._socket = self._connected()
        if config.security == "tls":
            self._secure()
        self.stage = Stage.GREETING
        reply = self._read_reply(self._seconds_left(self._ends_at))
        if reply.code // 100 != 2:  # noqa: PLR2004
            raise SmtpFailure(Stage.GREETING, reply)
        self._ends_at = time.monotonic() + 2 * config.timeout_ms / 1_000
        self._ehlo()
        if config.security == "starttls":
            if "STARTTLS" not in self.extensions:
                raise SmtpLost(Stage.STARTTLS, "the relay does not offer STARTTLS", insecure=True)
            self._expect(Stage.STARTTLS, "STARTTLS", 2)
            if self._buffer:
                raise SmtpLost(Stage.STARTTLS, "the relay spoke before TLS began", insecure=True)
            self._secure()
            self._ehlo()
        if config.username is not None:
            self._authenticate(config.username, config.password or "")

    def _connected(self) -> socket.socket:
        """Resolve the relay's name and try each of its addresses, all within the one time."""
        reason, timed_out = "no address", False
        try:
            addresses = addresses_of(self._config.host, self._config.port, self._seconds_left(self._ends_at))
        except TimeoutError:
            raise SmtpLost(self.stage, "the relay's name was not resolved in time", timed_out=True) from None
        except OSError:
            raise SmtpLost(self.stage, "the relay's name could not be resolved") from None
        for family, kind, protocol, _, address in addresses:
            candidate = socket.socket(family, kind, protocol)
            try:
                candidate.settimeout(self._seconds_left(self._ends_at))
                candidate.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                candidate.connect(address)
            except OSError as error:
                candidate.close()
                timed_out = isinstance(error, TimeoutError)
                reason = "no connection in time" if timed_out else error.strerror or "refused"
            except BaseException:
                candidate.close()
                raise
            else:
                return candidate
        raise SmtpLost(self.stage, f"the relay could not be reached: {reason}", timed_out=timed_out)

    def _secure(self) -> None:
        if self._config.security == "starttls":
            self.stage = Stage.STARTTLS
        assert self._socket is not None  # noqa: S101  # only called on an open connection
        try:
            context = ssl.create_default_context(cafile=self._config.ca_file or certifi.where())
        except OSError:
            raise SmtpLost(self.stage, "the file of trusted authorities cannot be read", insecure=True) from None
        try:
            self._socket.settimeout(self._seconds_left(self._ends_at))
            self._socket = context.wrap_socket(self._socket, server_hostname=self._config.host)
        except TimeoutError:
            raise SmtpLost(self.stage, "TLS was not established in time", timed_out=True) from None
        except _HANDSHAKE_CUT:
            raise SmtpLost(self.stage, "the relay closed during the TLS handshake") from None
        except ssl.SSLError as error:
            raise SmtpLost(self.stage, f"TLS failed: {error.reason or 'unknown'}", insecure=True) from None
        except OSError as error:
            raise SmtpLost(self.stage, f"TLS was cut: {error.strerror or 'connection lost'}") from None

    def _ehlo(self) -> None:
        assert self._socket is not None  # noqa: S101
        address = self._socket.getsockname()[0]
        literal = f"[IPv6:{address}]" if ":" in address else f"[{address}]"
        reply = self._expect(Stage.EHLO, f"EHLO {literal}", 2)
        lines = [line.partition(" ") for line in reply.text.split("\n")[1:]]
        self.extensions = {name.upper(): rest for name, _, rest in lines}

    def _authenticate(self, username: str, password: str) -> None:
        mechanisms = self.extensions.get("AUTH", "").upper().split()
        if "PLAIN" in mechanisms:
            token = b64encode(f"\0{username}\0{password}".encode()).decode()
            self._expect(Stage.AUTH, f"AUTH PLAIN {token}", 2)
        elif "LOGIN" in mechanisms:
            self._expect(Stage.AUTH, f"AUTH LOGIN {b64encode(username.encode()).decode()}", 3)
            self._expect(Stage.AUTH, b64encode(password.encode()).decode(), 2)
        else:
            raise SmtpFailure(Stage.AUTH, Reply(504, "5.5.4", "the relay offers neither AUTH PLAIN nor AUTH LOGIN"))

    def _expect(self, stage: Stage, command: str, first_digit: int) -> Reply:
        self.stage = stage
        self._write(command.encode() + b"\r\n")
        reply = self._read_reply(min(self._config.timeout_ms / 1_000, self._seconds_left(self._ends_at)))
        self.last_used = time.monotonic()
        if reply.code // 100 != first_digit:
            raise SmtpFailure(stage, reply)
        return reply

    def _write(self, data: bytes) -> None:
        if self._socket is None:
            raise SmtpLost(self.stage, "the connection is closed")
        try:
            self._socket.settimeout(self._seconds_left(self._ends_at))
            self._socket.sendall(data)
        except TimeoutError:
            raise SmtpLost(self.stage, "the relay did not take what was written in time", timed_out=True) from None
        except OSError as error:
            raise SmtpLost(self.stage, f"writing failed: {error.strerror or 'connection lost'}") from None

    def _read_reply(self, within_s: float) -> Reply:
        """Read a whole answer, however slowly it comes, within one total time."""
        ends_at = time.monotonic() + within_s
        code, texts, read = -1, [], 0
        while True:
            line = self._read_line(ends_at)
            read += len(line)
            found = _LINE.fullmatch(line)
            if not found or read > _ANSWER_CAP:
                # What follows cannot be told apart from a late answer, so nothing more is read here.
                raise SmtpFailure(self.stage, Reply(-1, "", "the answer is not SMTP"))
            code = int(found[1])
            texts.append(found[3].decode("utf-8", "replace").strip())
            if found[2] != b"-":
                break
        enhanced = _ENHANCED.match(texts[0])
        return Reply(code, enhanced[1] if enhanced else "", "\n".join(texts)[:2_000])

    def _read_line(self, ends_at: float) -> bytes:
        while b"\n" not in self._buffer:
            if self._socket is None:
                raise SmtpLost(self.stage, "the connection is closed")
            try:
                self._socket.settimeout(self._seconds_left(ends_at))
                chunk = self._socket.recv(8_192)
            except TimeoutError:
                raise SmtpLost(self.stage, "no answer in time", timed_out=True) from None
            except OSError as error:
                raise SmtpLost(self.stage, f"the connection was lost: {error.strerror or 'TLS'}") from None
            if not chunk:
                raise SmtpLost(self.stage, "the relay closed the connection")
            self._buffer += chunk
            if len(self._buffer) > _ANSWER_CAP:
                raise SmtpLost(self.stage, "the answer has no end")
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.rstrip(b"\r")

    def _readable(self) -> bool:
        if self._socket is None or self._buffer:
            return True
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def _seconds_left(self, ends_at: float) -> float:
        left = ends_at - time.monotonic()
        if left <= 0:
            raise SmtpLost(self.stage, "the time for this message is over", timed_out=True)
        return left

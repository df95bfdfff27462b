"""
A real SMTP relay on loopback that does what a test tells it at each stage, and keeps the raw bytes it got.

    relay.once("rcpt", b"450 4.2.0 try later\\r\\n")      a line instead of the usual answer
    relay.always("dot", [HANG])                          actions as in tests.support.scripted_http

After an error answer of 421 the connection is closed, as relays do. A message counts as accepted at the
moment the server decides on a 2xx for its final dot, whether or not the answer then gets out.
"""

import contextlib
import queue
import socket
import ssl
import struct
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.support.scripted_http import CERTIFICATE, HANG, RESET, Action, Pause, Step

_USUAL = {
    "banner": b"220 relay.example.com ESMTP\r\n",
    "starttls": b"220 2.0.0 go ahead\r\n",
    "auth": b"235 2.7.0 authenticated\r\n",
    "mail": b"250 2.1.0 ok\r\n",
    "rcpt": b"250 2.1.5 ok\r\n",
    "data": b"354 end with a dot\r\n",
    "dot": b"250 2.0.0 Ok: queued as 4F2A1\r\n",
    "rset": b"250 2.0.0 ok\r\n",
    "noop": b"250 2.0.0 ok\r\n",
    "quit": b"221 2.0.0 bye\r\n",
}
#: Given to `once`/`always`: accept the message at the dot, then do these actions instead of answering.
ACCEPT_THEN = b"\0accept"


class _EndError(Exception):
    pass


@dataclass
class Taken:
    sender: str
    recipient: str
    wire: bytes  # between DATA and the final dot, dots still stuffed
    connection: int
    was_tls: bool

    @property
    def content(self) -> bytes:
        lines = self.wire.split(b"\r\n")
        return b"\r\n".join(line[1:] if line.startswith(b".") else line for line in lines)


@dataclass
class _Talk:
    socket: socket.socket
    number: int
    buffer: bytes = b""
    is_tls: bool = False
    sender: str = ""
    recipient: str = ""
    commands: list[str] = field(default_factory=list)


class ScriptedSmtp:
    def __init__(
        self, *, tls: bool = False, extensions: tuple[str, ...] = ("SIZE 10000000", "AUTH PLAIN LOGIN")
    ) -> None:
        self._implicit_tls = tls
        self.extensions = extensions
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(CERTIFICATE)
        self._once: dict[str, queue.SimpleQueue[Step]] = defaultdict(queue.SimpleQueue)
        self._always: dict[str, Step | Callable[[], Step]] = {}
        self.taken: list[Taken] = []
        self.commands: list[str] = []
        self.connections = 0
        self._open: set[socket.socket] = set()
        self._stop = threading.Event()
        self._changed = threading.Condition()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def once(self, stage: str, *steps: bytes | Step) -> None:
        for step in steps:
            self._once[stage].put([step] if isinstance(step, bytes) else step)

    def always(self, stage: str, step: bytes | Step | Callable[[], Step]) -> None:
        self._always[stage] = [step] if isinstance(step, bytes) else step

    def wait_until_closed(self, timeout_s: float = 5.0) -> None:
        """Wait until no connection is open any more."""
        with self._changed:
            assert self._changed.wait_for(lambda: not self._open, timeout_s)

    def close_connections(self) -> None:
        """Close every open connection, as a relay does with idle ones."""
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.wait_until_closed()

    def stop(self) -> None:
        self._stop.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(timeout=5)

    def _accept(self) -> None:
        while not self._stop.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.add(connection)
            thread = threading.Thread(target=self._serve, args=(_Talk(connection, self.connections),), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, talk: _Talk) -> None:
        try:
            talk.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._implicit_tls:
                self._secure(talk)
            self._perform(talk, "banner")
            while True:
                self._one_command(talk, self._line(talk).decode("latin-1"))
        except (OSError, EOFError, _EndError):
            return
        finally:
            talk.socket.close()
            with self._changed:
                self._open.discard(talk.socket)
                self._changed.notify_all()

    def _one_command(self, talk: _Talk, line: str) -> None:
        self.commands.append(line)
        verb = line.partition(" ")[0].lower()
        if verb == "ehlo":
            lines = ["relay.example.com", *self.extensions]
            text = "".join(f"250{'-' if i < len(lines) - 1 else ' '}{one}\r\n" for i, one in enumerate(lines))
            self._perform(talk, "ehlo", usual=text.encode())
        elif verb == "starttls":
            if self._perform(talk, "starttls").startswith(b"220"):
                self._secure(talk)
        elif verb == "auth":
            if line.upper().startswith("AUTH LOGIN"):
                talk.socket.sendall(b"334 UGFzc3dvcmQ6\r\n")
                self.commands.append(self._line(talk).decode())
            self._perform(talk, "auth")
        elif verb in {"mail", "rcpt"}:
            address = line.partition("<")[2].partition(">")[0]
            if verb == "mail":
                talk.sender = address
            else:
                talk.recipient = address
            self._perform(talk, verb)
        elif verb == "data":
            if self._perform(talk, "data").startswith(b"354"):
                self._take(talk)
        elif verb == "quit":
            self._perform(talk, "quit")
            raise _EndError
        else:
            self._perform(talk, verb, usual=None if verb in _USUAL else b"502 5.5.1 what?\r\n")

    def _take(self, talk: _Talk) -> None:
        self._perform(talk, "content", usual=b"")
        while not talk.buffer.startswith(b".\r\n") and b"\r\n.\r\n" not in talk.buffer:
            talk.buffer += self._receive(talk)
        wire, _, talk.buffer = (b"\r\n" + talk.buffer).partition(b"\r\n.\r\n")
        self._perform(
            talk, "dot", taken=Taken(talk.sender, talk.recipient, wire[2:] + b"\r\n", talk.number, talk.is_tls)
        )

    def _perform(self, talk: _Talk, stage: str, *, usual: bytes | None = None, taken: Taken | None = None) -> bytes:
        """Do what the script says about a stage; gives what was written."""
        step = self._step_for(stage, usual)
        if taken is not None and step and isinstance(step[0], bytes) and step[0][:1] in {b"2", ACCEPT_THEN[:1]}:
            self.taken.append(taken)
        written = b""
        for action in step:
            written += self._act(talk, action)
        if written.startswith(b"421"):
            raise _EndError
        return written

    def _act(self, talk: _Talk, action: Action) -> bytes:
        if action == ACCEPT_THEN:
            return b""
        if isinstance(action, bytes):
            talk.socket.sendall(action)
            return action
        if isinstance(action, Pause):
            self._stop.wait(action.seconds)
            return b""
        if action is HANG:
            while talk.socket.recv(65_536):
                pass
        elif action is RESET:
            talk.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise _EndError

    def _step_for(self, stage: str, usual: bytes | None) -> Step:
        with contextlib.suppress(queue.Empty):
            return self._once[stage].get_nowait()
        step = self._always.get(stage, [_USUAL.get(stage, b"") if usual is None else usual])
        return step() if callable(step) else step

    def _secure(self, talk: _Talk) -> None:
        plain = talk.socket
        talk.socket = self._context.wrap_socket(plain, server_side=True)
        talk.is_tls = True
        with self._changed:
            self._open.discard(plain)
            self._open.add(talk.socket)

    def _line(self, talk: _Talk) -> bytes:
        while b"\r\n" not in talk.buffer:
            talk.buffer += self._receive(talk)
        line, _, talk.buffer = talk.buffer.partition(b"\r\n")
        return line

    def _receive(self, talk: _Talk) -> bytes:
        data = talk.socket.recv(65_536)
        if not data:
            raise EOFError
        return data


@contextlib.contextmanager
def scripted_smtp(
    *, tls: bool = False, extensions: tuple[str, ...] = ("SIZE 10000000", "AUTH PLAIN LOGIN")
) -> Iterator[ScriptedSmtp]:
    relay = ScriptedSmtp(tls=tls, extensions=extensions)
    try:
        yield relay
    finally:
        relay.stop()

"""
A real HTTP server on loopback that does what a test tells it, and counts what it accepted.

A step is what the server does about one request: a sequence of bytes to write, pauses, and ways to end the
connection. Steps are queued per path; the last one given to `always` answers when the queue is empty.

    server.once("/email", answer(503), answer(201, {...}))
    server.always("/email", [b"HTTP/1.1 201 Created\\r\\n", HANG])
"""

import contextlib
import json
import queue
import socket
import ssl
import struct
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl

CERTIFICATE = Path(__file__).with_name("loopback.pem")  # self-signed, for localhost and 127.0.0.1; tests only


@dataclass(frozen=True)
class Pause:
    seconds: float


class Ending:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


CLOSE = Ending("CLOSE")  # FIN
RESET = Ending("RESET")  # RST
HANG = Ending("HANG")  # say nothing more until the client leaves or the server stops

Action = bytes | Pause | Ending
Step = Sequence[Action]


@dataclass(frozen=True)
class Received:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    connection: int
    number_on_connection: int

    def json(self) -> dict:  # type: ignore[type-arg]
        return json.loads(self.body)  # type: ignore[no-any-return]


def answer(status: int, body: object = None, headers: Mapping[str, str] | None = None) -> Step:
    raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} Because", f"Content-Length: {len(raw)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return [("\r\n".join(lines) + "\r\n\r\n").encode() + raw]


def drip(data: bytes, *, every_s: float) -> Step:
    return [part for byte in data for part in (bytes([byte]), Pause(every_s))]


class ScriptedHttp:
    def __init__(self, *, tls: bool = False, early: bool = False) -> None:
        """Answer before the body is read where `early`; close without reading the rest."""
        self._early = early
        self._tls = _server_context() if tls else None
        self._once: dict[str, queue.SimpleQueue[Step]] = defaultdict(queue.SimpleQueue)
        self._always: dict[str, Step | Callable[[Received], Step]] = {}
        self.received: list[Received] = []
        self.connections = 0
        self._stop = threading.Event()
        self._open: set[socket.socket] = set()
        self._changed = threading.Condition()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def once(self, path: str, *steps: Step) -> None:
        for step in steps:
            self._once[path].put(step)

    def always(self, path: str, step: Step | Callable[[Received], Step]) -> None:
        self._always[path] = step

    def posts(self, path: str) -> list[Received]:
        return [r for r in self.received if r.path.partition("?")[0] == path]

    def count_by(self, key: Callable[[Received], str], path: str) -> Counter[str]:
        return Counter(key(r) for r in self.posts(path))

    def wait_until_closed(self, timeout_s: float = 5.0) -> None:
        """Wait until the server has closed every connection it had."""
        with self._changed:
            assert self._changed.wait_for(lambda: not self._open, timeout_s)

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
            thread = threading.Thread(target=self._serve, args=(connection, self.connections), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        self._open.add(connection)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                plain, connection = connection, self._tls.wrap_socket(connection, server_side=True)
                self._open.discard(plain)
                self._open.add(connection)
            requests = 0
            buffer = b""
            while True:
                head, buffer = _read_head(connection, buffer)
                requests += 1
                request, buffer = self._read_body(connection, head, buffer, (number, requests))
                self.received.append(request)
                if not self._perform(connection, self._step_for(request)):
                    return
        except (OSError, EOFError):
            return
        finally:
            connection.close()
            with self._changed:
                self._open.discard(connection)
                self._changed.notify_all()

    def _read_body(
        self, connection: socket.socket, head: bytes, buffer: bytes, number: tuple[int, int]
    ) -> tuple[Received, bytes]:
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", "0"))
        while len(buffer) < length and not self._early:
            buffer += _receive(connection)
        return Received(method, path, headers, buffer[:length], *number), buffer[length:]

    def _step_for(self, request: Received) -> Step:
        path = request.path.partition("?")[0]
        with contextlib.suppress(queue.Empty):
            return self._once[path].get_nowait()
        step = self._always.get(path, answer(404))
        return step(request) if callable(step) else step

    def _perform(self, connection: socket.socket, step: Step) -> bool:
        for action in step:
            if isinstance(action, bytes):
                connection.sendall(action)
            elif isinstance(action, Pause):
                self._stop.wait(action.seconds)
            elif action is HANG:
                while connection.recv(65_536):
                    pass
                return False
            else:
                if action is RESET:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return False
        return not self._early


def _read_head(connection: socket.socket, buffer: bytes) -> tuple[bytes, bytes]:
    while b"\r\n\r\n" not in buffer:
        buffer += _receive(connection)
    head, _, rest = buffer.partition(b"\r\n\r\n")
    return head, rest


def _receive(connection: socket.socket) -> bytes:
    data = connection.recv(65_536)
    if not data:
        raise EOFError
    return data


def _server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    return context


@contextlib.contextmanager
def scripted_http(*, tls: bool = False, early: bool = False) -> Iterator[ScriptedHttp]:
    server = ScriptedHttp(tls=tls, early=early)
    try:
        yield server
    finally:
        server.stop()


def free_port() -> int:
    """Give a port that nothing listens on (it was free a moment ago)."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def form(request: Received) -> dict[str, str]:
    return dict(parse_qsl(request.body.decode()))

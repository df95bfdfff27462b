"""
A provider that takes everything, in a process of its own, as fast as one core allows.

Speaks enough of CHES (`…/email`, `…/token`, `…/status?tag=`), Twilio (`…/Messages.json`) and ACS (`/sms`) to
stand behind a benchmark, counts what it accepted per key, and answers `GET /__count`, `GET /__arrivals`
and `POST /__reset`. Written on sockets and a selector: asyncio costs more per request than the work does.

    python -m tests.support.sink --latency-ms 200     prints "PORT <n>" and serves until its stdin closes
"""

import argparse
import collections
import contextlib
import json
import re
import selectors
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

_KEY = re.compile(rb'"tag": ?"([^"]+)"|[?&]?key(?:=|%3D)([0-9a-fA-F-]{36})|"repeatabilityRequestId": ?"([^"]+)"')
_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
_ROOT = Path(__file__).resolve().parents[2]


class _Connection:
    __slots__ = ("buffer", "socket")

    def __init__(self, accepted: socket.socket) -> None:
        self.socket = accepted
        self.buffer = b""


class Sink:
    def __init__(self, latency_s: float) -> None:
        self._latency_s = latency_s
        self._selector = selectors.DefaultSelector()
        self._due: collections.deque[tuple[float, _Connection, bytes]] = collections.deque()
        self._accepted = 0
        self._first_seen: dict[bytes, float] = {}
        self._stop = False
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1_024)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._selector.register(sys.stdin, selectors.EVENT_READ, "stdin")
        self.port: int = self._listener.getsockname()[1]

    def serve(self) -> None:
        while not self._stop:
            wait = max(0.0, self._due[0][0] - time.monotonic()) if self._due else None
            for key, _ in self._selector.select(wait):
                if key.data is None:
                    self._accept()
                elif key.data == "stdin":
                    self._stop = True
                else:
                    self._read(key.data)
            now = time.monotonic()
            while self._due and self._due[0][0] <= now:
                _, connection, answer = self._due.popleft()
                self._write(connection, answer)

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                accepted, _ = self._listener.accept()
                accepted.setblocking(False)
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._selector.register(accepted, selectors.EVENT_READ, _Connection(accepted))

    def _read(self, connection: _Connection) -> None:
        try:
            data = connection.socket.recv(262_144)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(connection.socket)
            connection.socket.close()
            return
        connection.buffer += data
        while self._take_request(connection):
            pass

    def _take_request(self, connection: _Connection) -> bool:
        buffer = connection.buffer
        end = buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        length = _LENGTH.search(buffer, 0, end)
        total = end + 4 + (int(length[1]) if length else 0)
        if len(buffer) < total:
            return False
        connection.buffer = buffer[total:]
        path = buffer[: buffer.find(b"\r\n")].split(b" ")[1]
        answer, counted = self._answer(path, buffer[end + 4 : total])
        if self._latency_s and counted:
            self._due.append((time.monotonic() + self._latency_s, connection, answer))
        else:
            self._write(connection, answer)
        return bool(connection.buffer)

    def _write(self, connection: _Connection, answer: bytes) -> None:
        # An answer is below the socket's buffer; a peer that stopped reading big ones loses the rest.
        with contextlib.suppress(OSError):
            if len(answer) > 100_000:
                connection.socket.setblocking(True)
            connection.socket.sendall(answer)
            connection.socket.setblocking(False)

    def _answer(self, path: bytes, body: bytes) -> tuple[bytes, bool]:
        """Give the answer and whether the request counts as a send (only those wait for the latency)."""
        if path.endswith(b"/email"):
            number = self._take(body)
            return _json(b"201 Created", _CHES % (number, number)), True
        if path.endswith(b"/Messages.json"):
            return _json(b"201 Created", b'{"sid":"SM%032x","status":"queued"}' % self._take(body)), True
        if path.startswith(b"/sms"):
            items = [
                {"to": one["to"], "messageId": f"m-{self._take(json.dumps(one).encode())}", "httpStatusCode": 202,
                 "successful": True, "repeatabilityResult": "accepted"}
                for one in json.loads(body)["smsRecipients"]
            ]  # fmt: skip
            return _json(b"202 Accepted", json.dumps({"value": items}).encode()), True
        if path.endswith(b"/token"):
            return _json(b"200 OK", b'{"access_token":"sink-token","expires_in":300,"token_type":"Bearer"}'), False
        return self._answer_about_itself(path), False

    def _answer_about_itself(self, path: bytes) -> bytes:
        if path == b"/__count":
            distinct = len(self._first_seen)
            counts = {"total": self._accepted, "distinct": distinct, "duplicates": self._accepted - distinct}
            return _json(b"200 OK", json.dumps(counts).encode())
        if path == b"/__arrivals":
            arrivals = {key.decode(): at for key, at in self._first_seen.items()}
            return _json(b"200 OK", json.dumps(arrivals).encode())
        if path == b"/__reset":
            self._accepted = 0
            self._first_seen.clear()
            return _json(b"200 OK", b"{}")
        if b"/status?tag=" in path:
            seen = path.rpartition(b"=")[2] in self._first_seen
            return _json(b"200 OK", b'[{"msgId":"sink","status":"completed"}]' if seen else b"[]")
        return _json(b"404 Not Found", b"{}")

    def _take(self, body: bytes) -> int:
        self._accepted += 1
        found = _KEY.search(body)
        key = found[found.lastindex or 0] if found else b"no-key-%d" % self._accepted
        self._first_seen.setdefault(key, time.time())
        return self._accepted


_CHES = (
    b'{"txId":"00000000-0000-4000-8000-%012x","messages":'
    b'[{"msgId":"00000000-0000-4000-9000-%012x","to":["someone@example.com"]}]}'
)


def _json(status: bytes, body: bytes) -> bytes:
    return b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)


class SinkHandle:
    """A running sink, seen from the test's or benchmark's process."""

    def __init__(self, port: int, pid: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.pid = pid

    def count(self) -> dict[str, int]:
        """Give `total`, `distinct` and `duplicates` of what it accepted."""
        counts: dict[str, int] = self._ask("/__count")
        return counts

    def arrivals(self) -> dict[str, float]:
        """Give for each key the Unix time at which it was first accepted."""
        arrivals: dict[str, float] = self._ask("/__arrivals")
        return arrivals

    def reset(self) -> None:
        self._ask("/__reset")

    def _ask(self, path: str):  # type: ignore[no-untyped-def]  # the shape depends on the path
        with urllib.request.urlopen(self.url + path, timeout=30) as answer:
            return json.load(answer)


@contextlib.contextmanager
def running_sink(latency_ms: int = 0) -> Iterator[SinkHandle]:
    """Run a sink in a process of its own; it ends with this block, or with this process."""
    command = [sys.executable, "-m", "tests.support.sink", "--latency-ms", str(latency_ms)]
    with subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        port = int(process.stdout.readline().split()[1])
        try:
            yield SinkHandle(port, process.pid)
        finally:
            process.stdin.close()
            process.wait(timeout=10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--latency-ms", type=int, default=0, help="wait before each answer to a send, milliseconds")
    sink = Sink(parser.parse_args().latency_ms / 1_000)
    print("PORT", sink.port, flush=True)
    sink.serve()


if __name__ == "__main__":
    main()

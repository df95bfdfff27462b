"""A host's addresses within a time: the system's resolver bounds itself by its own settings only, and cannot be cut."""

import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

#: As `socket.getaddrinfo` gives them.
Addresses = Sequence[tuple[Any, ...]]

_under_way: dict[tuple[str, int], "Future[Addresses]"] = {}
_lock = threading.Lock()


def addresses_of(
    host: str, port: int, within_s: float, look_up: Callable[..., Addresses] = socket.getaddrinfo
) -> Addresses:
    """
    Look a host up for TCP.

    Whoever asks for the same host and port meanwhile waits for the same answer, so that a resolver that hangs holds
    one thread and not one for each call.

    Raises: TimeoutError after `within_s` seconds; OSError as the resolver does, or where no thread can be started.
    """
    with _lock:
        answer = _under_way.get((host, port))
        if answer is None:
            answer = Future()
            # A daemon: it must not hold up the end of the process.
            thread = threading.Thread(
                target=_look_up, args=(host, port, look_up, answer), name="name-lookup", daemon=True
            )
            try:
                thread.start()
            except RuntimeError as error:  # too many threads, too little memory
                raise OSError("no thread for the look-up of a name could be started") from error
            _under_way[host, port] = answer
    return answer.result(timeout=max(0.0, within_s))


def _look_up(host: str, port: int, look_up: Callable[..., Addresses], answer: "Future[Addresses]") -> None:
    try:
        found = look_up(host, port, type=socket.SOCK_STREAM)
    except BaseException as error:  # noqa: BLE001  # whatever it is belongs to those who wait
        _forget(host, port)
        answer.set_exception(error)
    else:
        _forget(host, port)
        answer.set_result(found)


def _forget(host: str, port: int) -> None:
    with _lock:
        _under_way.pop((host, port), None)

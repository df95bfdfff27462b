"""Which network addresses a call may connect to, asked when it connects: no look-up can change in between."""

import socket
from collections.abc import Callable
from typing import Any

import pycurl

from shared.domain.endpoints import is_public


class _Lent:
    """A socket for pycurl, which makes a copy of its descriptor and then lets go of this."""

    def __init__(self, opened: socket.socket) -> None:
        self._opened = opened

    def fileno(self) -> int:
        return self._opened.fileno()

    def __del__(self) -> None:
        self._opened.close()


class AddressGuard:
    """
    Refuses addresses that are not public, call by call.

    An engine asks it for the opener of each handle; `refused` holds the tokens of calls that were refused, until
    they are read.
    """

    def __init__(self, may_be_private: Callable[[int], bool]) -> None:
        """`may_be_private` says of a call, by its token, whether its host was allowed by name."""
        self._may_be_private = may_be_private
        self._refused: set[int] = set()

    def opener(self, token: Callable[[], int]) -> Callable[[int, object], _Lent | int]:
        """The function that opens the sockets of one handle; `token` is that of the call now on it."""

        def open_socket(_purpose: int, address: Any) -> _Lent | int:
            family, kind, protocol, where = address
            if not self._may_be_private(token()) and not is_public(_text(where)):
                self._refused.add(token())
                return pycurl.SOCKET_BAD
            return _Lent(socket.socket(family, kind, protocol))

        return open_socket

    def was_refused(self, token: int) -> bool:
        """Whether a call was refused an address since it was asked last; it may have gone to another of its host's."""
        refused = token in self._refused
        self._refused.discard(token)
        return refused


def _text(where: object) -> str:
    host = where[0] if isinstance(where, tuple) else where
    return host.decode("ascii", "replace") if isinstance(host, bytes) else str(host)

"""A proxy as routers are: it hands bytes on as they come, and cuts a connection on which nothing passed for a while."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from select import select


class IdleProxy:
    """
    Stands before a port of this machine.

    `idle_s`: seconds without a byte in either direction after which it cuts. `cut` counts the connections it has cut.
    """

    def __init__(self, port: int, *, idle_s: float) -> None:
        self._target, self._idle_s = port, idle_s
        self.cut = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):  # the listener was closed
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._hand_on, args=(client,), daemon=True).start()

    def _hand_on(self, client: socket.socket) -> None:
        with client, suppress(OSError), socket.create_connection(("127.0.0.1", self._target)) as server:
            other = {client: server, server: client}
            while True:
                ready, _, _ = select([client, server], [], [], self._idle_s)
                if not ready:
                    self.cut += 1
                    return
                for end in ready:
                    data = end.recv(65_536)
                    if not data:
                        return
                    other[end].sendall(data)

    def close(self) -> None:
        """Take no more connections."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@contextmanager
def idle_proxy(port: int, *, idle_s: float) -> Iterator[IdleProxy]:
    """Stand before a port for a while."""
    proxy = IdleProxy(port, idle_s=idle_s)
    try:
        yield proxy
    finally:
        proxy.close()

"""TLS before a port that speaks none, as managed stores offer it."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

from tests.support.scripted_http import CERTIFICATE


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def _serve(plain: socket.socket, context: ssl.SSLContext, port: int) -> None:
    with (
        suppress(OSError),
        context.wrap_socket(plain, server_side=True) as client,
        socket.create_connection(("127.0.0.1", port)) as server,
    ):
        back = threading.Thread(target=_pump, args=(server, client), daemon=True)
        back.start()
        _pump(client, server)
        back.join()


@contextmanager
def tls_front(port: int) -> Iterator[int]:
    """Give the port that speaks TLS, with the certificate of the tests, for what `port` of this machine says."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def accept() -> None:
            with suppress(OSError):  # the listener was closed
                while True:
                    client, _ = listener.accept()
                    threading.Thread(target=_serve, args=(client, context, port), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)

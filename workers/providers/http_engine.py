"""
Many HTTP calls at once from one thread, over libcurl's multi interface with kept connections.

What libcurl would do behind one's back, and why the options below stop it:

- On a reused connection that dies before the first byte of the answer it sends the request again, POST
  included. A body that comes from READFUNCTION without SEEKFUNCTION cannot be rewound, so it fails with
  error 65 instead. POSTFIELDS is therefore never used, and a POST without a body takes a fresh connection.
- It looks whether a kept connection is still open at most once a second; in between, a request goes into a
  connection the far side closed long ago. So the engine looks itself before each burst of calls.
- It reads proxy settings from the environment, asks for `100-continue` before large bodies and would speak
  HTTP/2 (whose streams it may retry): all three are off.

Sources: libcurl's CURLOPT_* pages; measured with libcurl 8.23, each point held by a test with such a server.
"""

import errno
import io
import os
import re
import select
import socket
import time
from collections.abc import Iterator
from http import HTTPStatus

import certifi
import pycurl

from workers.providers.http import HttpLimits, HttpRequest, HttpResult

#: bytes of an answer's body kept; a provider's JSON is below 2 kB, an error page of a gateway below 20 kB.
BODY_CAP = 65_536
#: libcurl's code for a transfer that its user broke off; of a call that `stop` ended.
STOPPED = pycurl.E_ABORTED_BY_CALLBACK
#: seconds after which the caller gets to run while nothing ends.
GLANCE_S = 0.05

_POLL_MASK = {
    pycurl.POLL_IN: select.POLLIN,
    pycurl.POLL_OUT: select.POLLOUT,
    pycurl.POLL_INOUT: select.POLLIN | select.POLLOUT,
}
_BROKEN = select.POLLERR | select.POLLHUP | select.POLLNVAL
#: In libcurl's words for a connection that it could not make: it helps nobody, and would be another text each time.
_CONNECT_TOOK = re.compile(r" after \d+ ms\b")


class _Call:
    """One reusable curl handle and what the call now running on it has brought so far."""

    def __init__(self, limits: HttpLimits) -> None:
        self.curl = _new_handle(limits)
        self.curl.setopt(pycurl.WRITEFUNCTION, self._keep)
        self.token = -1
        if limits.socket_opener is not None:
            self.curl.setopt(pycurl.OPENSOCKETFUNCTION, limits.socket_opener(lambda: self.token))
        self.request: HttpRequest = HttpRequest("", [], None, "")
        self.timeout_ms = 0
        self.fresh = False
        self.started = 0.0
        self.retried = False
        self.head: list[bytes] = []
        self.body = b""

    def prepare(self, token: int, request: HttpRequest, timeout_ms: int, *, fresh: bool) -> None:
        curl, before = self.curl, self.request
        if request.method != before.method:
            curl.setopt(pycurl.HTTPGET, 1)
            curl.setopt(pycurl.CUSTOMREQUEST, request.method)
        if request.url is not before.url:
            curl.setopt(pycurl.URL, request.url)
        if request.headers is not before.headers:
            curl.setopt(pycurl.HTTPHEADER, [*request.headers, "Expect:"])
        if timeout_ms != self.timeout_ms:
            curl.setopt(pycurl.TIMEOUT_MS, timeout_ms)
        if request.body is not None:
            curl.setopt(pycurl.POST, 1)
            curl.setopt(pycurl.POSTFIELDSIZE, len(request.body))
            curl.setopt(pycurl.READFUNCTION, io.BytesIO(request.body).read)
        fresh = fresh or (request.method == "POST" and not request.body)
        if fresh != self.fresh:
            curl.setopt(pycurl.FRESH_CONNECT, fresh)
            self.fresh = fresh
        self.head, self.body = [], b""
        curl.setopt(pycurl.HEADERFUNCTION, self.head.append)
        self.token, self.request, self.timeout_ms = token, request, timeout_ms
        self.started = time.monotonic()

    def _keep(self, chunk: bytes) -> int | None:
        self.body += chunk
        return 0 if len(self.body) > BODY_CAP else None

    def result(self, error: int, error_text: str) -> HttpResult:
        curl = self.curl
        status = curl.getinfo(pycurl.RESPONSE_CODE)
        result = HttpResult(status if status >= HTTPStatus.OK else 0, self.head, self.body)
        result.elapsed_s = time.monotonic() - self.started
        if error:
            uploaded = int(curl.getinfo(pycurl.SIZE_UPLOAD_T))
            result.error, result.error_text = error, _CONNECT_TOOK.sub("", error_text)
            result.bytes_sent = curl.getinfo(pycurl.REQUEST_SIZE) + uploaded
            result.request_complete = uploaded >= len(self.request.body or b"")
        return result


class _KeptConnections:
    """Watches the connections that libcurl keeps open between calls."""

    def __init__(self) -> None:
        self._port_of: dict[int, int] = {}
        self._poll = select.poll()

    def note(self, curl: pycurl.Curl) -> None:
        """Remember the connection of a call that ended, if it was kept."""
        fd = curl.getinfo(pycurl.ACTIVESOCKET)
        if fd >= 0:
            port = curl.getinfo(pycurl.LOCAL_PORT)
            if self._port_of.get(fd) != port:
                self._port_of[fd] = port
                self._poll.register(fd, select.POLLIN)

    def any_is_dead(self) -> bool:
        """
        Whether a kept connection was closed, or spoken on, by the far side; ask only while nothing runs.

        libcurl cannot be told which one, so the answer is good for taking fresh connections until it has
        noticed by itself.
        """
        dead = False
        for fd, events in self._poll.poll(0):
            if events & select.POLLNVAL or not self._is_still(fd):
                self._poll.unregister(fd)
                del self._port_of[fd]
            else:
                dead = True
        return dead

    def _is_still(self, fd: int) -> bool:
        """Whether the descriptor is still the connection noted; libcurl may have closed it, and others reuse it."""
        try:
            with socket.socket(fileno=os.dup(fd)) as copy:
                name = copy.getsockname()
        except OSError:
            return False
        return isinstance(name, tuple) and name[1] == self._port_of[fd]


class HttpEngine:
    """
    Runs calls concurrently and hands out each result as it ends.

    Belongs to one thread. Kept connections are shared by all calls of the engine. It waits with poll(2),
    since libcurl's own fd sets end at descriptor 1,023, which a worker with many threads passes.
    """

    def __init__(self, limits: HttpLimits) -> None:
        self._limits = limits
        self._idle: list[_Call] = []
        self._running: dict[pycurl.Curl, _Call] = {}
        self._poll = select.poll()
        self._timer_due: float | None = None
        self._kept = _KeptConnections()
        self._connect_fresh = False
        self._stopped = False
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_MAXCONNECTS, 1_000)
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._set_timer)

    def start(self, token: int, request: HttpRequest) -> None:
        """Begin a call; its result comes out of `results` under `token`. Allowed while `results` is iterated."""
        if not self._running:
            self._connect_fresh = self._kept.any_is_dead()
        call = self._idle.pop() if self._idle else _Call(self._limits)
        call.retried = False
        timeout_ms = request.timeout_ms or self._limits.total_timeout_ms
        call.prepare(token, request, timeout_ms, fresh=self._connect_fresh)
        self._running[call.curl] = call
        self._multi.add_handle(call.curl)

    def results(self) -> Iterator[tuple[int, HttpResult] | None]:
        """
        Yield (token, result) in the order of completion until nothing runs; None every 50 ms of silence.

        Closing the iterator, or an exception in it, cuts what still runs.
        """
        try:
            heard_at = time.monotonic()
            while self._running:
                if self._stopped:
                    yield from [self._finish(curl, STOPPED, "the process had to stop") for curl in [*self._running]]
                    continue
                self._step()
                for ended in self._completed():
                    yield ended
                    heard_at = time.monotonic()
                if time.monotonic() - heard_at >= GLANCE_S:
                    yield None
                    heard_at = time.monotonic()
        finally:
            self._cut()

    def stop(self) -> None:
        """Let every call running, and every later one, end at once with the error STOPPED."""
        self._stopped = True

    def close(self) -> None:
        """Cut what runs and close the kept connections."""
        self._cut()
        for call in self._idle:
            call.curl.close()
        self._idle.clear()
        self._multi.close()

    def _step(self) -> None:
        wait_s = GLANCE_S
        if self._timer_due is not None:
            wait_s = min(wait_s, max(0.0, self._timer_due - time.monotonic()))
        for fd, events in self._poll.poll(wait_s * 1_000):
            mask = (pycurl.CSELECT_IN if events & select.POLLIN else 0) | (
                pycurl.CSELECT_OUT if events & select.POLLOUT else 0
            )
            if events & _BROKEN:
                mask |= pycurl.CSELECT_ERR
            self._multi.socket_action(fd, mask)
        if self._timer_due is not None and self._timer_due <= time.monotonic():
            self._timer_due = None
            self._multi.socket_action(pycurl.SOCKET_TIMEOUT, 0)

    def _completed(self) -> Iterator[tuple[int, HttpResult]]:
        queued = 1
        while queued:
            queued, done, failed = self._multi.info_read()
            for curl in done:
                yield self._finish(curl, 0, "")
            for curl, error, text in failed:
                if error == pycurl.E_COULDNT_CONNECT and self._connect_again(curl):
                    continue
                yield self._finish(curl, error, text)

    def _finish(self, curl: pycurl.Curl, error: int, text: str) -> tuple[int, HttpResult]:
        call = self._running.pop(curl)
        result = call.result(error, text)
        if error != STOPPED:
            self._kept.note(curl)
        self._multi.remove_handle(curl)
        self._idle.append(call)
        return call.token, result

    def _connect_again(self, curl: pycurl.Curl) -> bool:
        """Start a refused call once more, within its own total: nothing has left this machine."""
        call = self._running[curl]
        left_ms = call.timeout_ms - int((time.monotonic() - call.started) * 1_000)
        refused = curl.getinfo(pycurl.OS_ERRNO) == errno.ECONNREFUSED and not curl.getinfo(pycurl.REQUEST_SIZE)
        if call.retried or not refused or left_ms <= 0:
            return False
        self._multi.remove_handle(curl)
        call.prepare(call.token, call.request, left_ms, fresh=self._connect_fresh)
        call.retried = True
        self._multi.add_handle(curl)
        return True

    def _cut(self) -> None:
        for curl, call in self._running.items():
            self._multi.remove_handle(curl)
            call.curl.close()
        self._running.clear()

    def _watch(self, what: int, fd: int, _multi: object, _data: object) -> None:
        if what == pycurl.POLL_REMOVE:
            self._poll.unregister(fd)
        else:
            self._poll.register(fd, _POLL_MASK[what])

    def _set_timer(self, timeout_ms: int) -> None:
        self._timer_due = None if timeout_ms < 0 else time.monotonic() + timeout_ms / 1_000


def _new_handle(limits: HttpLimits) -> pycurl.Curl:
    curl = pycurl.Curl()
    curl.setopt(pycurl.NOSIGNAL, 1)
    curl.setopt(pycurl.CONNECTTIMEOUT_MS, limits.connect_timeout_ms)
    curl.setopt(pycurl.MAXAGE_CONN, limits.idle_connection_s)
    curl.setopt(pycurl.MAXLIFETIME_CONN, limits.connection_lifetime_s)
    curl.setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1)
    curl.setopt(pycurl.HTTP09_ALLOWED, 0)
    curl.setopt(pycurl.FOLLOWLOCATION, 0)
    curl.setopt(pycurl.PROXY, "")
    curl.setopt(pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS)
    curl.setopt(pycurl.CAINFO, limits.ca_file or certifi.where())
    curl.setopt(pycurl.SSL_VERIFYPEER, 1)
    curl.setopt(pycurl.SSL_VERIFYHOST, 2)
    curl.setopt(pycurl.USERAGENT, "Tidings")
    return curl

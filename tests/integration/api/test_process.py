"""The web process itself, killed and cut off at the wrong moment."""

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from shared.ledger.db import Ledger
from tests.benchmarks.usage import peak_mb, tree
from tests.integration.api.conftest import NOTHING, Api, email, key_of, rows_stored
from tests.support.processes import ProcessStarter
from tests.support.waiting import wait_until


@pytest.fixture
def black_hole() -> Iterator[str]:
    """The address of a Redis that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}/0"


@pytest.fixture
def unused_address(unused_port: int) -> str:
    return f"127.0.0.1:{unused_port}"


THREADS = 8


def start(process: ProcessStarter, address: str, *words: str, **env: str) -> Any:
    gunicorn = ["python", "-m", "gunicorn", "admin.wsgi:app", "--worker-class", "gthread", "--threads", str(THREADS)]
    return process(
        [*gunicorn, *words, "--bind", address, "--no-control-socket"],
        env={"EMAIL_FROM": "news@example.com", **env},
        ready=f"http://{address}/healthz",
    )


def connected(address: str) -> socket.socket:
    host, _, port = address.partition(":")
    return socket.create_connection((host, int(port)), timeout=20)


def head(secret: str, *lines: str) -> bytes:
    fields = ["Host: x", f"Authorization: Bearer {secret}", "Content-Type: application/json", *lines]
    return "\r\n".join(["POST /api/v1/sends HTTP/1.1", *fields, "\r\n"]).encode()


def post(address: str, secret: str, body: bytes, **headers: str) -> tuple[int, Any]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    named |= {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
    with closing(http.client.HTTPConnection(address, timeout=30)) as connection:
        connection.request("POST", "/api/v1/sends", body, named)
        response = connection.getresponse()
        return response.status, json.loads(response.read())


#: Recipients; more than the 65,535 parameters that a statement of Postgres may have.
MANY = 70_000
#: What they may cost the web process beside a submission of one: it takes 10; the same rows read at once take over 40.
MORE_MB = 30


def test_a_large_submission_is_stored_whole_and_costs_the_web_process_little_memory(
    process: ProcessStarter, ledger: Ledger, redis_url: str, unused_address: str
) -> None:
    secret = key_of(ledger, "acme")[2]
    rows = [{"to": f"r{number}@example.com", "params": {"name": f"n{number}" * 4}} for number in range(MANY)]
    body = json.dumps(email(*rows)).encode()
    running = start(process, unused_address, REDIS_URL=redis_url)
    post(unused_address, secret, json.dumps(email()).encode())
    before_mb = peak_mb(tree(running.pid))
    status, answer = post(unused_address, secret, body)
    assert (status, answer["accepted"]["email"]) == (202, MANY)
    with ledger.autocommit() as connection:
        stored = connection.execute(
            "SELECT count(*), max(row_no) FROM delivery WHERE send_id = %s", [answer["id"]]
        ).fetchone()
    assert stored == (MANY, MANY)
    more_mb = peak_mb(tree(running.pid)) - before_mb  # 0 where there is no /proc
    assert more_mb < MORE_MB


def test_a_web_process_killed_between_commit_and_enqueue_loses_nothing(
    process: ProcessStarter, ledger: Ledger, redis_url: str, black_hole: str, unused_address: str
) -> None:
    secret = key_of(ledger, "acme")[2]
    body = json.dumps(email()).encode()
    running = start(process, unused_address, REDIS_URL=black_hole)

    def submit_and_be_cut_off() -> None:
        with pytest.raises((ConnectionError, http.client.HTTPException)):
            post(unused_address, secret, body, Idempotency_Key="k1")

    def committed() -> Any:
        with ledger.transaction() as connection:
            return connection.execute("SELECT id, status FROM send").fetchone()

    client = threading.Thread(target=submit_and_be_cut_off)
    client.start()
    wait_until(committed, what="the commit of the send")
    running.kill()
    client.join()
    send, status = committed()
    assert status == "pending"
    again = start(process, unused_address, REDIS_URL=redis_url)
    answered = post(unused_address, secret, body, Idempotency_Key="k1")
    assert answered[0] == 202
    assert answered[1]["id"] == str(send)
    assert again.terminate() == 0


def test_a_body_sent_in_chunks_is_taken_and_one_cut_short_is_not(
    process: ProcessStarter, ledger: Ledger, redis_url: str, unused_address: str
) -> None:
    secret = key_of(ledger, "acme")[2]
    start(process, unused_address, REDIS_URL=redis_url, API_MAX_BODY_BYTES="4096")
    connection = http.client.HTTPConnection(unused_address, timeout=30)
    headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
    body = json.dumps(email()).encode()
    connection.request("POST", "/api/v1/sends", iter([body[:10], body[10:]]), headers, encode_chunked=True)
    response = connection.getresponse()
    assert (response.status, response.read() != b"") == (202, True)
    connection.request("POST", "/api/v1/sends", iter([b" " * 3_000] * 2), headers, encode_chunked=True)
    response = connection.getresponse()
    assert (response.status, json.loads(response.read())["status"]) == (413, 413)
    connection.close()
    with connected(unused_address) as raw:
        raw.sendall(head(secret, "Content-Length: 100") + b"{}")
        raw.shutdown(socket.SHUT_WR)
        assert b" 400 " in raw.recv(100)


def test_a_body_in_broken_chunks_is_400_and_stores_nothing(
    process: ProcessStarter, ledger: Ledger, redis_url: str, unused_address: str
) -> None:
    secret = key_of(ledger, "acme")[2]
    start(process, unused_address, REDIS_URL=redis_url)
    for chunks in (b"zz\r\n{}", b"-5\r\n{}", b"2\r\n{}{}\r\n0\r\n\r\n", b"2\r\n{"):
        with connected(unused_address) as raw:
            raw.sendall(head(secret, "Transfer-Encoding: chunked") + chunks)
            raw.shutdown(socket.SHUT_WR)
            assert b" 400 " in raw.recv(100)
    assert rows_stored(ledger) == NOTHING


def test_clients_that_fall_silent_keep_no_thread(
    process: ProcessStarter, ledger: Ledger, redis_url: str, unused_address: str, tmp_path: Path
) -> None:
    secret = key_of(ledger, "acme")[2]
    impatient = tmp_path / "impatient.py"
    impatient.write_text("from admin import serving\nfrom admin.serving import *\nserving.STALL_S = 1\n")
    web = start(process, unused_address, "--config", str(impatient), REDIS_URL=redis_url)
    with ExitStack() as stack:
        in_head = [stack.enter_context(connected(unused_address)) for _ in range(THREADS)]
        for raw in in_head:
            raw.sendall(b"POST /api/v1/sends HTTP/1.1\r\nHost: x\r\n")
        assert [raw.recv(100) for raw in in_head] == [b""] * THREADS
        in_body = [stack.enter_context(connected(unused_address)) for _ in range(THREADS)]
        for raw, how in zip(in_body, ["Content-Length: 100", "Transfer-Encoding: chunked"] * THREADS, strict=False):
            raw.sendall(head(secret, how) + b"2\r\n{")
        assert all(b" 400 " in raw.recv(100) for raw in in_body)
        assert post(unused_address, secret, json.dumps(email()).encode())[0] == 202
    assert "Traceback" not in web.output()


def test_a_client_that_announces_too_much_and_falls_silent_reads_the_413(
    process: ProcessStarter, ledger: Ledger, redis_url: str, unused_address: str, tmp_path: Path
) -> None:
    secret = key_of(ledger, "acme")[2]
    impatient = tmp_path / "impatient.py"
    impatient.write_text("from admin import serving\nfrom admin.serving import *\nserving.STALL_S = 1\n")
    start(process, unused_address, "--config", str(impatient), REDIS_URL=redis_url, API_MAX_BODY_BYTES="4096")
    with connected(unused_address) as raw:
        raw.sendall(head(secret, "Content-Length: 5000") + b"{")
        assert b" 413 " in raw.recv(100)


def test_a_client_that_sends_too_much_reads_the_413_and_not_a_reset(
    process: ProcessStarter, ledger: Ledger, redis_url: str, unused_address: str
) -> None:
    secret = key_of(ledger, "acme")[2]
    start(process, unused_address, REDIS_URL=redis_url, API_MAX_BODY_BYTES=str(4 * 1024 * 1024))
    for _ in range(3):
        # four times as much as any buffer between the two holds, so the client is still sending when it is refused
        status, problem = post(unused_address, secret, b" " * (15 * 1024 * 1024))
        assert (status, problem["type"]) == (413, "/api/v1/docs#body-too-large")
    in_chunks = (b" " * 65_536 for _ in range(200))
    with closing(http.client.HTTPConnection(unused_address, timeout=30)) as connection:
        headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
        connection.request("POST", "/api/v1/sends", in_chunks, headers, encode_chunked=True)
        assert connection.getresponse().status == 413
        assert post(unused_address, secret, json.dumps(email()).encode())[0] == 202


def test_a_body_far_too_large_is_refused_without_being_read(
    process: ProcessStarter, ledger: Ledger, redis_url: str, unused_address: str
) -> None:
    secret = key_of(ledger, "acme")[2]
    start(process, unused_address, REDIS_URL=redis_url, API_MAX_BODY_BYTES="4096")
    with closing(http.client.HTTPConnection(unused_address, timeout=30)) as connection:
        connection.putrequest("POST", "/api/v1/sends")
        fields = {"Content-Type": "application/json", "Content-Length": str(10**12)}
        for name, value in {"Authorization": f"Bearer {secret}", **fields}.items():
            connection.putheader(name, value)
        connection.endheaders()
        assert connection.getresponse().status == 413


def test_a_restarted_postgres_costs_nobody_an_error(api: Api, ledger: Ledger) -> None:
    assert api.get("/sends").status_code == 200
    with ledger.autocommit() as connection:
        connection.execute(
            # It waits until they are gone: a connection that looks well as it dies fails a request, as it may.
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    assert api.get("/sends").status_code == 200
    assert api.submit(email()).status_code == 202

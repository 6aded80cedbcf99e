from __future__ import annotations

import logging
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import httpx2
import pytest
from fastapi import Response

from foreshock.api import connections
from foreshock.api.app import create_app
from foreshock.api.server import NUM_THREADS, AddressInUse, ApiServer, OpenToTheNetwork, ServerError
from foreshock.storage.store import Store


@pytest.fixture
def server(store: Store) -> Iterator[ApiServer]:
    with ApiServer(create_app(store, version="1")) as started:
        yield started


def connect(server: ApiServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=12)


def alive(server: ApiServer) -> bool:
    return httpx2.get(f"{server.url}/livez", trust_env=False).status_code == 200


def test_start_gives_the_port_that_already_answers(store: Store) -> None:
    server = ApiServer(create_app(store, version="1"), "127.0.0.1", 0)
    port = server.start()
    try:
        assert server.url == f"http://127.0.0.1:{port}"
        assert alive(server)
    finally:
        server.stop()
    with pytest.raises(OSError, match="refused"):
        connect(server)


def test_stop_is_harmless_before_start_and_twice(store: Store) -> None:
    server = ApiServer(create_app(store, version="1"))
    server.stop()
    server.start()
    server.stop()
    server.stop()


def test_a_port_in_use_is_named(store: Store, server: ApiServer) -> None:
    port = int(server.url.rpartition(":")[2])
    second = ApiServer(create_app(store, version="1"), "127.0.0.1", port)
    with pytest.raises(AddressInUse, match=f"127.0.0.1 port {port} is in use"):
        second.start()
    assert alive(server)


@pytest.mark.parametrize("host", ["256.1.1.1", "192.0.2.1", "no such host.invalid"])
def test_an_address_that_is_not_ours_is_named(store: Store, host: str) -> None:
    app = create_app(store, token="a token of more than 32 characters", version="1")
    with pytest.raises(ServerError, match=host):
        ApiServer(app, host, 0).start()


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_without_a_token_nothing_listens_beyond_this_machine(store: Store, host: str) -> None:
    with pytest.raises(OpenToTheNetwork, match="set a token"):
        ApiServer(create_app(store, version="1"), host, 0).start()


def test_signal_handlers_stay_as_they_were(server: ApiServer) -> None:
    assert alive(server)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def trickle(connection: socket.socket, *, seconds: float) -> None:
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        connection.sendall(b"X")
        time.sleep(0.2)  # a slow client is the subject here


PARTIAL = {
    "silence": b"",
    "half a header": b"GET /runs HTTP/1.1\r\nHost: local",
    "half a body": b"GET /runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc",
    "an idle connection": b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


@pytest.mark.slow
def test_stop_does_not_wait_for_clients_that_do_not_end(store: Store) -> None:
    server = ApiServer(create_app(store, version="1"))
    server.start()
    with ExitStack() as stack:
        for sent in [*PARTIAL.values()] * 10:
            stack.enter_context(connect(server)).sendall(sent)
        assert alive(server)
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < 6
    assert "foreshock-api" not in {thread.name for thread in threading.enumerate()}


def test_life_and_measuring_go_on_while_every_thread_is_busy(store: Store) -> None:
    app = create_app(store, version="1")
    busy, release = threading.Semaphore(0), threading.Event()

    @app.get("/slow")
    def slow() -> list[str]:
        busy.release()
        assert release.wait(30)
        return [run.name for run in store.runs()]

    with ApiServer(app) as server, ThreadPoolExecutor(30) as clients:
        asked = [clients.submit(httpx2.get, f"{server.url}/slow", trust_env=False) for _ in range(30)]
        for _ in range(NUM_THREADS):
            assert busy.acquire(timeout=5)
        assert not busy.acquire(blocking=False)
        assert alive(server)
        store.ensure_run("measured meanwhile", "/c")
        release.set()
        assert {reply.result().status_code for reply in asked} == {200}


@pytest.mark.slow
def test_stop_does_not_wait_for_an_answer_that_takes_too_long(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    app = create_app(store, version="1")
    asked, release = threading.Event(), threading.Event()

    @app.get("/slow")
    def slow() -> None:
        asked.set()
        release.wait(60)

    server = ApiServer(app)
    server.start()
    with connect(server) as connection, caplog.at_level(logging.CRITICAL, "uvicorn.error"):
        connection.sendall(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert asked.wait(5)
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < 6
        release.set()


@pytest.mark.slow
def test_stop_does_not_wait_for_a_client_that_does_not_read(store: Store) -> None:
    app = create_app(store, version="1")

    @app.get("/large")
    def large() -> Response:
        return Response(b"x" * 50_000_000)

    server = ApiServer(app)
    server.start()
    with connect(server) as connection:
        connection.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(15) == b"HTTP/1.1 200 OK"
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < 4
    assert "foreshock-api" not in {thread.name for thread in threading.enumerate()}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch, server: ApiServer) -> ApiServer:
    """Waits a second, not eight."""
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 1.0)
    return server


@pytest.mark.slow
@pytest.mark.parametrize("sent", PARTIAL.values(), ids=PARTIAL)
def test_a_request_that_does_not_end_is_cut_off(impatient: ApiServer, sent: bytes) -> None:
    began = time.monotonic()
    with connect(impatient) as connection:
        connection.sendall(sent)
        with suppress(ConnectionResetError):
            while connection.recv(65_536):
                pass
    answered = sent.endswith((b"\r\n\r\n", b"abc"))
    assert time.monotonic() - began < (7 if answered else 3)


@pytest.mark.slow
def test_bytes_that_trickle_in_do_not_buy_time(impatient: ApiServer) -> None:
    began = time.monotonic()
    with connect(impatient) as connection, pytest.raises((BrokenPipeError, ConnectionResetError)):
        trickle(connection, seconds=8)
    assert time.monotonic() - began < 3


@pytest.mark.parametrize(
    "sent", [PARTIAL["silence"], PARTIAL["half a header"], PARTIAL["an idle connection"]]
)
def test_connections_that_nobody_uses_make_room_for_a_good_client(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 20)
    with ExitStack() as stack:
        for _ in range(60):
            connection = stack.enter_context(connect(server))
            connection.sendall(sent)
            if sent.endswith(b"\r\n\r\n"):
                assert connection.recv(15) == b"HTTP/1.1 200 OK"
        assert alive(server)

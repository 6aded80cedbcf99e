from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

import httpx2
import pytest
from starlette.types import Message, Receive, Scope, Send

from foreshock.api.limits import MAX_BODY_BYTES, MAX_CONCURRENT_REQUESTS, ConcurrencyLimit


def exchange(client: httpx2.Client, sent: Iterable[bytes]) -> bytes:
    """Everything that comes back until the server closes the connection."""
    address = urlsplit(str(client.base_url))
    with socket.create_connection((address.hostname, address.port), timeout=12) as connection:
        received = b""
        try:
            for part in sent:
                connection.sendall(part)
            while part := connection.recv(65_536):
                received += part
        except (BrokenPipeError, ConnectionResetError):
            pass
        return received


def test_a_small_body_is_ignored(client: httpx2.Client) -> None:
    assert client.request("GET", "/livez", content=b"x" * MAX_BODY_BYTES).status_code == 200


def test_a_large_body_is_refused_unread_and_the_connection_closed(client: httpx2.Client) -> None:
    head = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500000000\r\n\r\n"
    assert b" 413 " in exchange(client, [head])


def test_a_body_without_end_is_refused(client: httpx2.Client) -> None:
    head = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert b" 411 " in exchange(client, [head])


@pytest.mark.parametrize(
    "head",
    [
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: a\0b\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX : a\r\n\r\n",
        b"\x16\x03\x01 not http at all\r\n\r\n",
    ],
)
def test_what_is_not_http_is_400(client: httpx2.Client, head: bytes) -> None:
    assert b" 400 " in exchange(client, [head])


def test_headers_without_end_are_refused(client: httpx2.Client) -> None:
    head = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
    reply = exchange(client, [head, *(b"X-%d: %s\r\n" % (n, b"a" * 1000) for n in range(200))])
    assert reply == b"" or b" 400 " in reply


def test_too_many_requests_at_once_are_503_but_life_is_told() -> None:
    release = asyncio.Event()
    statuses: list[int] = []

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != "/livez":
            await release.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    async def receive() -> Message:
        return {"type": "http.request"}

    async def ask(limit: ConcurrencyLimit, path: str) -> None:
        await limit({"type": "http", "path": path, "headers": []}, receive, send)

    async def play() -> None:
        limit = ConcurrencyLimit(slow)
        held = [asyncio.create_task(ask(limit, "/runs")) for _ in range(MAX_CONCURRENT_REQUESTS)]
        await asyncio.sleep(0)
        await ask(limit, "/runs")
        await ask(limit, "/livez")
        assert statuses == [503, 200]
        release.set()
        await asyncio.gather(*held)
        await ask(limit, "/runs")

    asyncio.run(play())
    assert statuses[2:] == [200] * (MAX_CONCURRENT_REQUESTS + 1)

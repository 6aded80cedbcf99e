from __future__ import annotations

import socket
from collections.abc import Callable
from urllib.parse import urlsplit

import httpx2
import pytest
from fastapi import FastAPI

from foreshock.api.app import create_app
from foreshock.api.security import is_loopback
from foreshock.storage.store import Store

Serve = Callable[..., httpx2.Client]
TOKEN = "correct horse battery staple — ünïcödé"
PUBLIC = {"/", "/livez", "/static/{name}"}


def raw(client: httpx2.Client, *lines: bytes) -> bytes:
    """The status line and headers of a reply to a hand-written request."""
    address = urlsplit(str(client.base_url))
    with socket.create_connection((address.hostname, address.port), timeout=5) as connection:
        connection.sendall(b"\r\n".join([*lines, b"", b""]))
        connection.settimeout(5)
        received = b""
        while b"\r\n\r\n" not in received:
            received += connection.recv(65_536) or b"\r\n\r\n"
    return received


@pytest.fixture
def guarded(store: Store, serve: Serve) -> httpx2.Client:
    return serve(store, token=TOKEN)


def test_the_token_opens_the_door(guarded: httpx2.Client) -> None:
    for scheme in ("Bearer", "bearer", "BEARER"):
        reply = guarded.get("/runs", headers={"authorization": f"{scheme} {TOKEN}".encode()})
        assert reply.status_code == 200


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"Bearer",
        b"Bearer ",
        b"Bearer wrong",
        b"Bearer \xe9\xff",
        "Bearer é".encode(),
        f"Basic {TOKEN}".encode(),
        TOKEN.encode(),
        b"Bearer " + b"x" * 50_000,
        f"Bearer {TOKEN}x".encode(),
        f"Bearer {TOKEN[:-1]}".encode(),
    ],
)
def test_anything_else_is_401(guarded: httpx2.Client, value: bytes) -> None:
    reply = raw(guarded, b"GET /runs HTTP/1.1", b"Host: localhost", b"Authorization: " + value)
    assert reply.split()[1] == b"401"
    assert b"content-type: application/problem+json" in reply
    assert b'www-authenticate: Bearer realm="foreshock"' in reply
    assert TOKEN[:10].encode() not in reply


def test_no_header_and_two_headers_are_401(guarded: httpx2.Client) -> None:
    assert guarded.get("/runs").status_code == 401
    right = ("authorization", f"Bearer {TOKEN}".encode())
    assert guarded.get("/runs", headers=[right, ("authorization", b"Bearer wrong")]).status_code == 401
    assert guarded.get("/runs", headers=[right, right]).status_code == 401


def test_every_route_but_the_public_ones_asks_for_the_token(store: Store, guarded: httpx2.Client) -> None:
    paths = {path for path in paths_of(create_app(store, token=TOKEN, version="1")) if path not in PUBLIC}
    assert "/metrics" in paths
    assert "/openapi.json" in paths
    for path in paths:
        assert guarded.get(path.format(run="r", metric="m")).status_code == 401, path
    for path in ("/", "/livez", "/static/main.js"):
        assert guarded.get(path).status_code == 200


def paths_of(app: FastAPI) -> set[str]:
    return {*app.openapi()["paths"], "/openapi.json", "/", "/static/{name}", "/nowhere"}


def test_an_empty_token_is_refused_before_anything_is_served(store: Store) -> None:
    for token in ("", "  "):
        with pytest.raises(ValueError, match="empty"):
            create_app(store, token=token, version="1")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (b"127.0.0.1", b"200"),
        (b"127.0.0.1:1234", b"200"),
        (b"LOCALHOST:80", b"200"),
        (b"[::1]:80", b"200"),
        (b"evil.example", b"400"),
        (b"localhost.evil.example", b"400"),
        (b"evil.example:80@localhost", b"400"),
        (b"", b"400"),
        (b"[::1", b"400"),
        (b"localhost:80:80", b"400"),
    ],
)
def test_only_our_own_names_are_answered(client: httpx2.Client, host: bytes, status: bytes) -> None:
    reply = raw(client, b"GET /livez HTTP/1.1", b"Host: " + host)
    assert reply.split()[1] == status
    assert b"evil" not in reply


def test_forwarded_names_change_nothing(client: httpx2.Client) -> None:
    forged = {
        "x-forwarded-host": "evil.example",
        "x-forwarded-proto": "https",
        "forwarded": "host=evil.example",
    }
    assert "evil" not in client.get("/openapi.json", headers=forged).text
    assert raw(client, b"GET /livez HTTP/1.0").split()[1] == b"400"
    assert raw(client, b"GET http://evil.example/livez HTTP/1.1", b"Host: localhost").split()[1] == b"404"


def test_more_names_can_be_allowed(store: Store, serve: Serve) -> None:
    named = serve(store, allowed_hosts=("gpu-7.cluster", "::1"))
    assert raw(named, b"GET /livez HTTP/1.1", b"Host: gpu-7.cluster:9000").split()[1] == b"200"
    assert raw(named, b"GET /livez HTTP/1.1", b"Host: [::1]").split()[1] == b"200"
    assert raw(named, b"GET /livez HTTP/1.1", b"Host: localhost").split()[1] == b"400"
    anybody = serve(store, allowed_hosts=("*",))
    assert raw(anybody, b"GET /livez HTTP/1.1", b"Host: anything").split()[1] == b"200"


def test_other_sites_are_never_allowed_to_read(client: httpx2.Client) -> None:
    for reply in (
        client.get("/runs", headers={"origin": "https://evil.example"}),
        client.options(
            "/runs", headers={"origin": "https://evil.example", "access-control-request-method": "GET"}
        ),
    ):
        assert not [name for name in reply.headers if name.startswith("access-control")]
        assert "set-cookie" not in reply.headers


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"])
def test_nothing_can_be_changed(client: httpx2.Client, method: str) -> None:
    for path in ("/runs", "/metrics", "/", "/runs/small/findings"):
        reply = client.request(method, path)
        assert reply.status_code == 405
        assert reply.headers["content-type"] == "application/problem+json"
        assert "GET" in reply.headers["allow"]


def test_every_reply_carries_the_headers_that_lock_the_page(store: Store, serve: Serve) -> None:
    client = serve(store, token=TOKEN)
    replies = [client.get(path) for path in ("/", "/runs", "/livez", "/nowhere", "/static/main.js")]
    replies.append(client.get("/livez", headers={"host": "evil.example"}))
    for reply in replies:
        policy = reply.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self';")
        assert "unsafe" not in policy
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["referrer-policy"] == "no-referrer"
        assert "server" not in reply.headers


def test_there_is_no_page_that_loads_scripts_from_elsewhere(client: httpx2.Client) -> None:
    for path in ("/docs", "/redoc", "/docs/oauth2-redirect"):
        assert client.get(path).status_code == 404


@pytest.mark.parametrize(
    "name", ["..", "%2e%2e%2fapp.py", "../app.py", "..%5capp.py", "main.js%00", "index.html/x", "__init__.py"]
)
def test_the_page_s_files_lead_nowhere_else(client: httpx2.Client, name: str) -> None:
    reply = raw(client, f"GET /static/{name} HTTP/1.1".encode(), b"Host: localhost")
    assert reply.split()[1] == b"404"


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("[::1]", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.evil.example", False),
        ("", False),
    ],
)
def test_loopback_is_told_from_the_rest(host: str, local: bool) -> None:
    assert is_loopback(host) is local

"""Who may ask: requests under a name that is ours, with the token where one is set.

The list of names stops DNS rebinding: a page of another site whose name was made to point here sends
that site's name. There is no CORS and no cookie, so no other site can read a reply.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Iterable
from hashlib import sha256

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from foreshock.api.problems import problem

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
ANY_HOST = "*"

PUBLIC_PATHS = frozenset({"/", "/livez"})
PUBLIC_PREFIX = "/static/"
"""The page and its files hold no data; the page asks for the token."""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a socket that is bound to the host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _bracketed(name: str) -> str:
    """As a Host header writes it: IPv6 addresses in brackets."""
    return f"[{name}]" if ":" in name and not name.startswith("[") else name


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdecimal() else host).lower()


class HostAllowList:
    """Middleware that refuses requests under any name but the given ones.

    Args:
        names: without port; `*` allows every name.
    """

    def __init__(self, app: ASGIApp, names: Iterable[str]) -> None:
        self._app = app
        self._names = frozenset(_bracketed(name.lower()) for name in names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 400."""
        if scope["type"] == "http" and not self._allows(Headers(scope=scope).getlist("host")):
            detail = (
                "This server does not answer to the name in the Host header; allow the name if it should."
            )
            await problem(400, detail)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _allows(self, hosts: list[str]) -> bool:
        if ANY_HOST in self._names:
            return True
        return len(hosts) == 1 and _without_port(hosts[0]) in self._names


class BearerToken:
    """Middleware that asks for `Authorization: Bearer TOKEN` wherever there is data.

    Digests are compared, not texts: `compare_digest` takes as long for any two of them, and raises for
    texts that are not ASCII.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._digest = sha256(token.encode()).digest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 401."""
        path = scope.get("path", "")
        public = path in PUBLIC_PATHS or path.startswith(PUBLIC_PREFIX)
        if scope["type"] == "http" and not public and not self._knows(scope):
            detail = "Send the token as `Authorization: Bearer TOKEN`."
            headers = {"www-authenticate": 'Bearer realm="foreshock"'}
            await problem(401, detail, headers=headers)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _knows(self, scope: Scope) -> bool:
        sent = [value for name, value in scope["headers"] if name == b"authorization"]
        scheme, _, token = (sent[0] if len(sent) == 1 else b"").partition(b" ")
        same = hmac.compare_digest(sha256(token.strip()).digest(), self._digest)
        return same and scheme.lower() == b"bearer"

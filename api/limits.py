"""What a request may cost before it is refused."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from foreshock.api.problems import RETRY_AFTER_SECONDS, problem

MAX_BODY_BYTES = 64 * 1024
MAX_CONCURRENT_REQUESTS = 64

_CLOSE = {"connection": "close"}


class BodyLimit:
    """Middleware that refuses large bodies unread; no route takes one at all."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 411 or 413 and close the connection."""
        headers = Headers(scope=scope) if scope["type"] == "http" else Headers()
        length = headers.get("content-length", "0")
        if "transfer-encoding" in headers:
            reply = problem(411, "Bodies need a Content-Length here.", headers=_CLOSE)
        elif not length.isdecimal() or len(length) > 12 or int(length) > MAX_BODY_BYTES:
            reply = problem(413, f"Bodies may have {MAX_BODY_BYTES} bytes here.", headers=_CLOSE)
        else:
            await self._app(scope, receive, send)
            return
        await reply(scope, receive, send)


class ConcurrencyLimit:
    """Middleware that refuses requests while too many are being answered.

    Without it they would queue for a thread, and every one would be late.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._answering = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 503; `/livez` always passes."""
        if scope["type"] != "http" or scope["path"] == "/livez":
            await self._app(scope, receive, send)
            return
        if self._answering >= MAX_CONCURRENT_REQUESTS:
            detail = f"{MAX_CONCURRENT_REQUESTS} requests are being answered already; ask again later."
            wait = {"retry-after": str(RETRY_AFTER_SECONDS)}
            await problem(503, detail, headers=wait)(scope, receive, send)
            return
        self._answering += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._answering -= 1

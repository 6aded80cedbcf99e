"""HTTP connections that nobody can hold for long.

uvicorn waits for ever for the rest of a request, and for a client that does not read its reply; a few
hundred such clients leave no file descriptor for the others.
"""

from __future__ import annotations

import asyncio
from typing import cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS = 8.0
"""From the connection, or the first byte after a reply, to the last byte of the request."""

READING_SECONDS = 8.0
"""From the end of the keep-alive time until an unread reply is dropped."""

MAX_CONNECTIONS = 400
"""Beyond this the connection that has kept us waiting longest makes room."""

_WHOLE = frozenset({h11.DONE, h11.MUST_CLOSE, h11.CLOSED, h11.ERROR, h11.SWITCHED_PROTOCOL})


class PatientToAPoint(H11Protocol):
    """uvicorn's protocol with deadlines for the client."""

    waiting_since: float | None = None
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > MAX_CONNECTIONS:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Stop waiting once the request is whole."""
        if self._deadline is None and self.conn.their_state not in _WHOLE:
            self._wait()
        super().data_received(data)
        if self.conn.their_state in _WHOLE:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        """Wait again, for the next request; how long is uvicorn's affair until its first byte."""
        super().on_response_complete()
        if self.cycle.response_complete:
            self.waiting_since = self.loop.time()

    def timeout_keep_alive_handler(self) -> None:
        """Close the idle connection; what the client has not read then is soon dropped."""
        super().timeout_keep_alive_handler()
        self.loop.call_later(READING_SECONDS, self.transport.abort)

    def _wait(self) -> None:
        self.waiting_since = self.loop.time()
        self._deadline = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self.waiting_since = None

    def _make_room(self) -> None:
        ours = cast("set[PatientToAPoint]", self.connections)
        waiting = [(each.waiting_since, id(each), each) for each in ours if each.waiting_since is not None]
        longest = min(waiting)[2]
        longest.waiting_since = None  # it is gone only in the next turn of the loop
        longest.transport.abort()

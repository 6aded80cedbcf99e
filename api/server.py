"""The API's HTTP server, in a thread of the process that measures or serves."""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
from typing import Self

import uvicorn
from anyio import to_thread
from fastapi import FastAPI

from foreshock.api.connections import PatientToAPoint
from foreshock.api.security import is_loopback

GRACE_SECONDS = 2
"""So long running requests may take to end when the server stops."""

NUM_THREADS = 6
"""Answering at the same time: fewer than a store has connections, so that measuring always gets one."""

STOP_SECONDS = 5.0
START_SECONDS = 30.0


class ServerError(Exception):
    """The server cannot have the address; the message names it and says why."""


class AddressInUse(ServerError):
    """Another process listens there."""


class OpenToTheNetwork(ServerError):
    """The address can be reached from outside, and no token protects the API."""


class ApiServer:
    """Serves an application from a thread; installs no signal handlers.

    Args:
        app: made by `create_app`.
        host: an address or name of this machine.
        port: 0 lets the system choose.
    """

    def __init__(self, app: FastAPI, host: str = "127.0.0.1", port: int = 0) -> None:
        self._app = app
        self._host = host
        self._port = port
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> int:
        """Listen; returns the port once requests are answered.

        Raises:
            OpenToTheNetwork: the host is not loopback and the application has no token.
            AddressInUse: somebody else listens there.
            ServerError: no such address here, or no permission.
        """
        if not is_loopback(self._host) and not self._app.state.needs_token:
            raise OpenToTheNetwork(f"{self._host} can be reached from other machines: set a token first")
        listener = _listen(self._host, self._port)
        self._port = int(listener.getsockname()[1])
        self._server = _Server(_config(self._app))
        self._thread = threading.Thread(
            target=self._server.run, args=([listener],), name="foreshock-api", daemon=True
        )
        self._thread.start()
        if not self._server.listening.wait(START_SECONDS) or not self._server.started:
            raise ServerError(f"the server on {self._host} port {self._port} did not start; its log says why")
        return self._port

    @property
    def url(self) -> str:
        """Where the page is; with the port that was chosen, once started."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}"

    def stop(self) -> None:
        """End within five seconds, whatever clients do; harmless when nothing runs."""
        if self._server is None or self._thread is None:
            return
        self._server.should_exit = True
        self._thread.join(STOP_SECONDS)
        self._server = self._thread = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()


class _Server(uvicorn.Server):
    """uvicorn's server, which says when it listens and does not wait for clients that do not end."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = threading.Event()

    async def _serve(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super()._serve(sockets)
        finally:
            self.listening.set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        to_thread.current_default_thread_limiter().total_tokens = NUM_THREADS
        await super().startup(sockets)
        self.listening.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        for connection in self.server_state.connections:
            connection.transport.abort()
        await asyncio.sleep(0)  # their sockets close in the next turn of the loop


def _config(app: FastAPI) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=PatientToAPoint,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )


def _listen(host: str, port: int) -> socket.socket:
    where = f"{host} port {port}"
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server(address, family=family)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise AddressInUse(
                f"{where} is in use by another process: stop it, or choose another port"
            ) from error
        raise ServerError(f"cannot listen on {where}: {error.strerror or error}") from error

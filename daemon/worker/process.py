"""Our side of a reading process: start it, ask it, and outlive it.

Started afresh (never forked) with isolated imports and `/` as its directory, it speaks JSON, a line a
message. It may die, hang on a dead mount where not even SIGKILL ends it, or fill the pipe: whatever it
does, the caller gets a `WorkerError` within the time it allowed, and a new process on the next request.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any

from foreshock.daemon.errors import WorkerError

log = logging.getLogger(__name__)

Message = dict[str, Any]
_END: Message = {"type": "end"}
FINAL = frozenset({"result", "failure"})
"""Message types that answer a request; all others come before."""

WAIT_SECONDS = 2.0
MAX_STUCK = 2
"""So many processes may hang on a dead mount before no further one is started."""


class Interrupted(Exception):
    """The request was given up because the caller is stopping."""


class Worker:
    """One reading process, started on demand.

    Args:
        role: `scan` or `measure`.
        arguments: for the role, as strings.
        environment: on top of our own.
        on_notice: called, in another thread, with messages that answer no request.
    """

    def __init__(
        self,
        role: str,
        arguments: tuple[str, ...] = (),
        *,
        environment: Mapping[str, str] | None = None,
        on_notice: Callable[[Message], None] | None = None,
    ) -> None:
        self._command = (sys.executable, "-I", "-m", "foreshock.daemon.worker", role, *arguments)
        self._role = role
        self._environment = {**os.environ, **(environment or {})}
        self._on_notice = on_notice
        self._process: subprocess.Popen[bytes] | None = None
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._stuck: list[subprocess.Popen[bytes]] = []
        self.restarts = -1

    @property
    def pid(self) -> int | None:
        """Of the running process, None while there is none."""
        return self._process.pid if self._process else None

    def ask(
        self, request: Message, *, silence_seconds: float, on_wait: Callable[[], None] = lambda: None
    ) -> Iterator[Message]:
        """Send a request and yield its messages; the last has type `result` or `failure`.

        Args:
            silence_seconds: so long the process may say nothing before it is given up as hung.
            on_wait: called every few seconds while it says nothing.

        Raises:
            WorkerError: it died, hung or broke the protocol; it is gone, the next request starts another.
            Interrupted: `interrupt` was called.
        """
        self._ensure_started()
        self._send(request)
        while True:
            message = self._next_message(silence_seconds, on_wait)
            if message is _END:
                code = self._reap()
                raise WorkerError(f"the {self._role} process died ({_cause(code)})")
            if message["type"] == "interrupt":
                self.kill()
                raise Interrupted
            yield message
            if message["type"] in FINAL:
                return

    def _next_message(self, silence_seconds: float, on_wait: Callable[[], None]) -> Message:
        waited = 0.0
        while waited < silence_seconds:
            slice_seconds = min(WAIT_SECONDS, silence_seconds - waited)
            try:
                return self._messages.get(timeout=slice_seconds)
            except queue.Empty:
                waited += slice_seconds
                on_wait()
        self.kill()
        raise WorkerError(
            f"the {self._role} process said nothing for {silence_seconds:.0f} s (a hung mount?)"
        )

    def interrupt(self) -> None:
        """Make the request in progress, or the next one, raise `Interrupted`; from any thread."""
        self._messages.put({"type": "interrupt"})

    def kill(self) -> None:
        """End the process now; one that is stuck in the kernel is left behind."""
        if self._process is not None:
            self._process.kill()
            self._reap()

    def _ensure_started(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self._stuck = [process for process in self._stuck if process.poll() is None]
        if len(self._stuck) >= MAX_STUCK:
            raise WorkerError(
                f"{len(self._stuck)} {self._role} processes hang in the kernel; waiting for them"
            )
        self._messages = _carry_interrupt(self._messages)
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd="/",
                env=self._environment,
                process_group=0,
            )
        except OSError as error:  # no memory, too many processes or descriptors
            raise WorkerError(f"the {self._role} process does not start: {error.strerror}") from error
        self.restarts += 1
        log.debug("started the %s process, pid %d", self._role, self._process.pid)
        assert self._process.stdout is not None
        arguments = (self._process.stdout, self._messages, self._on_notice)
        threading.Thread(target=_receive, args=arguments, daemon=True, name=f"{self._role}-messages").start()

    def _send(self, request: Message) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            log.debug("the %s process is gone; its end is reported by its other pipe", self._role)

    def _reap(self) -> int | None:
        process, self._process = self._process, None
        if process is None:
            return None
        assert process.stdin is not None
        with contextlib.suppress(OSError):  # what it did not take is lost with it
            process.stdin.close()
        try:
            return process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            log.error("process %d does not end, not even by SIGKILL: left behind", process.pid)  # noqa: TRY400
            self._stuck.append(process)
            return None


def _receive(
    stream: IO[bytes], messages: queue.SimpleQueue[Message], on_notice: Callable[[Message], None] | None
) -> None:
    """Sort what the process says, until it ends."""
    with stream:
        for line in stream:
            message: Message = json.loads(line)
            if message["type"] == "notice":
                if on_notice is not None:
                    on_notice(message)
            else:
                messages.put(message)
    messages.put(_END)


def _carry_interrupt(old: queue.SimpleQueue[Message]) -> queue.SimpleQueue[Message]:
    """A fresh queue; what a dead process said is dropped, a caller's interrupt is not."""
    fresh: queue.SimpleQueue[Message] = queue.SimpleQueue()
    while not old.empty():
        message = old.get()
        if message["type"] == "interrupt":
            fresh.put(message)
    return fresh


def _cause(code: int | None) -> str:
    if code is None:
        return "it could not be ended"
    return f"signal {-code}" if code < 0 else f"exit status {code}"

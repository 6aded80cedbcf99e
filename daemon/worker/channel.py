"""The reading process's side of the pipe."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

_PR_SET_PDEATHSIG = 1
_SYS_IOPRIO_SET = 251  # x86-64 and most others; on the rest the call fails and nothing is lost
_IOPRIO_IDLE = 3 << 13


class Channel:
    """Requests in, messages out, a line of JSON each.

    Whatever else the process prints goes to standard error, so that no library can break the protocol.
    """

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
        self._lock = threading.Lock()
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def requests(self) -> Iterator[dict[str, Any]]:
        """Until the other side closes the pipe."""
        for line in sys.stdin.buffer:
            yield json.loads(line)

    def send(self, kind: str, **fields: Any) -> None:
        """One message; from any thread."""
        line = json.dumps({"type": kind, **fields}).encode() + b"\n"
        with self._lock:
            self._out.write(line)
            self._out.flush()


def become_a_good_neighbour() -> None:
    """Lowest priority for CPU and disk, and no life beyond the parent's."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == 1:  # the parent died before the line above
        sys.exit(1)
    libc.syscall(_SYS_IOPRIO_SET, 1, 0, _IOPRIO_IDLE)
    os.nice(19)

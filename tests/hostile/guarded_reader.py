"""A process that reads checkpoints while it watches itself: run with a path a line, it answers JSON a line.

An answer says which error came out, what the reading cost, and every audit event that reading a file must
never cause: imports, new code, processes, sockets, and files opened for writing.
"""

from __future__ import annotations

import gc
import json
import os
import re
import resource
import sys
import time
from pathlib import Path
from typing import Any

from tests.writers.opening import read_everything

WATCHED = (
    "code.", "compile", "cpython.", "ctypes.dlopen", "exec", "ftplib", "function.__new__", "http.",
    "import", "marshal.", "mmap.", "object.__", "os.exec", "os.fork", "os.link", "os.mkdir",
    "os.posix_spawn", "os.putenv", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.system",
    "os.truncate", "pickle.find_class", "pty.", "shutil.", "smtplib", "socket.", "subprocess.", "sys.add",
    "tempfile.", "urllib.", "webbrowser.",
)  # fmt: skip
MAX_ADDRESS_SPACE = 16 << 30

events: list[str] = []
armed = False


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    if not armed:
        return
    writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
    if writes or event.startswith(WATCHED):
        events.append(f"{event} {arguments!r:.200}")


def memory(field: str) -> int:
    """Bytes of a field of our own status."""
    text = Path("/proc/self/status").read_text()
    return 1024 * int(re.search(rf"{field}:\s+(\d+)", text)[1])  # type: ignore[index]


def answer(path: str) -> dict[str, Any]:
    global armed  # noqa: PLW0603 - the hook can have no other state
    events.clear()
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = memory("VmRSS")
    wall, cpu = time.perf_counter(), time.process_time()
    error, message, tensors = "", "", 0
    armed = True
    try:
        if path == "!":
            os.system("true")
        else:
            tensors = len(read_everything(Path(path)))
    except BaseException as caught:  # noqa: BLE001 - whatever comes out is the result
        error, message = f"{type(caught).__module__}.{type(caught).__name__}", str(caught)
    finally:
        armed = False
    return {
        "error": error,
        "message": message,
        "tensors": tensors,
        "cpu_seconds": time.process_time() - cpu,
        "wall_seconds": time.perf_counter() - wall,
        "grown_bytes": memory("VmHWM") - before,
        "events": list(events),
    }


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MAX_ADDRESS_SPACE, MAX_ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.addaudithook(watch)
    gc.freeze()  # collecting the modules again for every file would take most of the time
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()

"""The process that looks at a run's directory, and is woken by events where the filesystem has them."""

from __future__ import annotations

import contextlib
import logging
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver

from foreshock.daemon.discovery.filesystem import has_remote_writers
from foreshock.daemon.discovery.scan import Known, Scanner
from foreshock.daemon.worker.channel import Channel

log = logging.getLogger(__name__)


class _Waker(FileSystemEventHandler):
    """Says that something happened, at most once between two scans."""

    def __init__(self, root: Path, channel: Channel) -> None:
        self._root = str(root)
        self._channel = channel
        self.asleep = threading.Event()
        self.root_gone = threading.Event()

    def on_any_event(self, event: FileSystemEvent) -> None:
        """Any event but those that reading causes."""
        if event.event_type in {"deleted", "moved"} and event.src_path == self._root:
            self.root_gone.set()  # its successor may have the same inode number
        if event.event_type in {"opened", "closed_no_write"} or not self.asleep.is_set():
            return
        self.asleep.clear()
        self._channel.send("notice", notice="wake")


class Events:
    """inotify on a directory that may not exist yet, vanish, and be made again."""

    def __init__(self, root: Path, channel: Channel) -> None:
        self._root = root
        self._waker = _Waker(root, channel)
        self._observer: BaseObserver | None = None
        self._watched: tuple[int, int] | None = None
        self.mode = "polling"

    def rearm(self) -> None:
        """Watch the directory that is there now; called before every scan."""
        identity = _identity(self._root)
        if identity != self._watched or self._blind():
            self.close()
            self._watched = identity
            if identity is not None:
                self._arm()
        self._waker.asleep.set()

    def _blind(self) -> bool:
        """Whether what was watched is gone, or the watching threads died."""
        if self._observer is None:
            return False
        alive = self._observer.is_alive() and all(each.is_alive() for each in self._observer.emitters)
        return self._waker.root_gone.is_set() or not alive

    def _arm(self) -> None:
        if has_remote_writers(self._root):
            log.info("%s: on a network filesystem, events are not relied on", self._root)
            return
        observer = Observer()
        try:
            observer.schedule(self._waker, str(self._root), recursive=True)
            observer.start()
        except OSError as error:  # the limits of fs.inotify.max_user_watches or _instances
            log.warning("%s: no events (%s); scanning at intervals alone", self._root, error)
            return
        self._observer = observer
        self.mode = "events"

    def close(self) -> None:
        """Stop watching."""
        if self._observer is not None:
            with contextlib.suppress(RuntimeError):
                self._observer.stop()
                self._observer.join(timeout=5)
        self._observer = None
        self._waker.root_gone.clear()
        self.mode = "polling"


def _identity(root: Path) -> tuple[int, int] | None:
    try:
        status = root.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def serve(channel: Channel, arguments: list[str]) -> None:
    """Answer scan requests; arguments are the root and the settling time in seconds."""
    root, settle_seconds = Path(arguments[0]), float(arguments[1])
    scanner = Scanner(root, settle_seconds)
    events = Events(root, channel)
    for request in channel.requests():
        events.rearm()
        known = {name: Known(*fields) for name, fields in request["known"].items()}
        scan = scanner.scan(known)
        answer: dict[str, Any] = asdict(scan)
        channel.send("result", scan=answer, mode=events.mode)

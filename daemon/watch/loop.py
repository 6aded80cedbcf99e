"""Wake, scan, measure, store, tell; again until somebody says stop."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from foreshock.daemon.errors import WorkerError
from foreshock.daemon.watch.observer import Measurement, Observer
from foreshock.daemon.worker.process import Interrupted
from foreshock.storage.errors import StorageError
from foreshock.storage.records import CheckpointState, Status

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Loop:
    """Keeps one observer going.

    Attributes:
        on_measurement: called after a checkpoint was stored.
        job_ended: when it says yes and nothing is left to measure, `run` returns.
        last_error: what kept the last round from its work; empty when nothing did.
    """

    observer: Observer
    on_measurement: Callable[[Measurement], None] = lambda _measurement: None
    job_ended: Callable[[], bool] = lambda: False
    last_error: str = ""
    _backlog: int = 0
    _reported: float = -math.inf
    _stopping: threading.Event = field(default_factory=threading.Event)
    _wake: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Go on until `stop`; returns when the work in hand was laid down safely."""
        self.observer.on_wake = self._wake.set
        self.observer.on_wait = self._keep_reporting
        try:
            self._settle_in()
            while not self._stopping.is_set():
                last = self.job_ended()  # asked before the scan that must then see all it wrote
                self._round()
                if last and not self.observer.ledger.count(CheckpointState.PENDING):
                    break
                self._wait()
        except Interrupted:
            log.info("stopping; what was in progress is measured after the next start")
        finally:
            self.observer.close()
            self._report_end()
        log.info("stopped")

    def stop(self) -> None:
        """End soon; from any thread or a signal handler."""
        self._stopping.set()
        self._wake.set()
        self.observer.interrupt()

    def _settle_in(self) -> None:
        try:
            self.observer.register_metrics()
        except WorkerError as error:
            self.last_error = str(error)
            log.exception("the measuring process does not start")

    def _round(self) -> None:
        """Scan until nothing complete is left, measuring the oldest each time."""
        try:
            while not self._stopping.is_set():
                ready = self.observer.look()
                self.last_error = self.observer.root_error
                self._report(len(ready))
                self.observer.tell()
                if not ready:
                    return
                measurement = self.observer.measure(ready[0])
                if measurement is not None:
                    self.observer.tell()
                    self.on_measurement(measurement)
        except WorkerError as error:
            self._complain(str(error))
        except StorageError as error:
            self._complain(f"database: {error}")

    def _complain(self, error: str) -> None:
        if error != self.last_error:
            log.error("%s", error)
        self.last_error = error
        self._report(0)

    def _wait(self) -> None:
        """Until an event, a stop, or the interval is over; while something settles, look again sooner."""
        settings = self.observer.settings
        waiting = self.observer.ledger.count(CheckpointState.PENDING)
        soon = min(max(settings.settle_seconds, 0.2), settings.interval_seconds)
        self._wake.wait(soon if waiting else settings.interval_seconds)
        self._wake.clear()

    def _keep_reporting(self) -> None:
        """While a long measurement runs, say every interval that we are alive."""
        if time.monotonic() - self._reported >= self.observer.settings.interval_seconds:
            self._report(self._backlog)

    def _report(self, backlog: int) -> None:
        self._backlog, self._reported = backlog, time.monotonic()
        observer = self.observer
        ledger = observer.ledger
        detail = {
            "run": observer.run.name,
            "interval_seconds": observer.settings.interval_seconds,
            "watch_mode": observer.watch_mode,
            "backlog": backlog,
            "latest_step": ledger.latest_step(),
            "counts": {state.value: ledger.count(state) for state in CheckpointState},
            "ignored": list(observer.ignored[:20]),
            "last_error": self.last_error,
        }
        status = Status(f"watch:{observer.run.name}", datetime.now(UTC), not self.last_error, detail)
        try:
            observer.store.set_status(status)
        except StorageError as error:
            log.error("the database does not take our status: %s", error)  # noqa: TRY400

    def _report_end(self) -> None:
        self.last_error = self.last_error or "stopped"
        self._report(0)

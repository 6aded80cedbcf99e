"""One run under observation: look at its directory, measure what is new, judge it, store it, tell.

All contact with the run's directory happens in two reading processes; this side holds the database.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from foreshock.daemon.alerts.base import Notifier
from foreshock.daemon.alerts.delivery import deliver
from foreshock.daemon.config import Settings
from foreshock.daemon.detectors.base import Detector
from foreshock.daemon.discovery.scan import Condition, Scan, Sighting
from foreshock.daemon.errors import CheckpointError, ConfigError, VanishedCheckpoint, WorkerError
from foreshock.daemon.pipeline.request import Base, CacheOrder, HeadCounts, MeasureRequest, Source
from foreshock.daemon.watch.history import StoredHistory
from foreshock.daemon.watch.ledger import Entry, Ledger
from foreshock.daemon.worker.messages import error_of, unpack_sample
from foreshock.daemon.worker.process import Message, Worker
from foreshock.storage.errors import StorageError
from foreshock.storage.records import CheckpointRecord, CheckpointState, Finding, Metric, Run, Sample
from foreshock.storage.store import Store

log = logging.getLogger(__name__)

MAX_REASON_CHARACTERS = 2000

RETURN_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 20), "MALLOC_TRIM_THRESHOLD_": str(1 << 20)}
"""glibc otherwise keeps freed tensors of up to 32 MiB for itself: a fifth of the peak on a large model."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one checkpoint gave."""

    entry: Entry
    samples: tuple[Sample, ...]
    findings: tuple[Finding, ...]
    outcome: Message


@dataclass(slots=True)
class Observer:
    """Everything that happens to one run.

    Attributes:
        root: the run's directory; what the database calls it may be escaped.
        on_progress: called with (layers done, layers in all) while a checkpoint is measured.
        on_wait: called every few seconds while a reading process is at work.
        on_wake: called, in another thread, when the filesystem says that something happened.
        caching: whether to keep the tensors that later differences need.
    """

    store: Store
    run: Run
    root: Path
    settings: Settings
    detectors: Sequence[Detector]
    notifiers: Sequence[Notifier]
    caching: bool = True
    settle_seconds: float | None = None
    on_progress: Callable[[Entry, int, int], None] = lambda _entry, _done, _total: None
    on_wait: Callable[[], None] = lambda: None
    on_wake: Callable[[], None] = lambda: None
    ledger: Ledger = field(init=False)
    watch_mode: str = "polling"
    ignored: tuple[str, ...] = ()
    root_error: str = ""
    _scanner: Worker = field(init=False)
    _measurer: Worker = field(init=False)
    _said: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        settings = self.settings
        settle = settings.settle_seconds if self.settle_seconds is None else self.settle_seconds
        self.ledger = Ledger(self.store, self.run, settings.incomplete_limit_seconds)
        self.ledger.load()
        self._scanner = Worker(
            "scan", (str(self.root), str(settle)), on_notice=lambda _message: self.on_wake()
        )
        self._measurer = measuring_worker(settings)

    def register_metrics(self) -> None:
        """Tell the database what the numbers mean.

        Raises:
            ConfigError: the device cannot be used.
        """
        self.store.register_metrics(catalogue(self._measurer, self.settings))

    def look(self) -> tuple[Entry, ...]:
        """Scan the directory once; the complete checkpoints that wait to be measured, by step.

        Raises:
            WorkerError: the scanning process died or hung.
        """
        request = {"known": {name: _fields(known) for name, known in self.ledger.known().items()}}
        *_, answer = self._scanner.ask(
            request, silence_seconds=self.settings.silence_seconds, on_wait=self.on_wait
        )
        scan = _scan(answer["scan"])
        self.watch_mode, self.ignored, self.root_error = answer["mode"], scan.ignored, scan.root_error
        return self.ledger.take(scan)

    def measure(self, entry: Entry) -> Measurement | None:
        """Measure one checkpoint and store what came out; None when nothing did.

        Whatever goes wrong ends in the ledger with a reason; a reading process that dies is given a
        second try.

        Raises:
            Interrupted: we are stopping; the checkpoint stays pending.
        """
        entry = self.ledger.begin(entry)
        try:
            samples, outcome = self._ask(entry)
        except VanishedCheckpoint as error:
            self.ledger.settle(entry, CheckpointState.MISSED, str(error))
            log.warning("step %d is missed: %s", entry.step, error)
        except (CheckpointError, ConfigError) as error:
            self.ledger.settle(entry, CheckpointState.QUARANTINED, str(error))
            log.warning("step %d is not measured: %s", entry.step, error)
        except WorkerError as error:
            return self._after_death(entry, error)
        else:
            return self._store(entry, samples, outcome)
        return None

    def tell(self) -> int:
        """Bring findings that wait to people; how many."""
        return deliver(self.store, self.notifiers)

    def interrupt(self) -> None:
        """Give up what is in progress; from any thread."""
        self._scanner.interrupt()
        self._measurer.interrupt()

    def close(self) -> None:
        """End the reading processes."""
        self._scanner.kill()
        self._measurer.kill()

    def _ask(self, entry: Entry) -> tuple[tuple[Sample, ...], Message]:
        request = {"ask": "measure", "request": self._request(entry).to_json()}
        samples: list[Sample] = []
        silence = self.settings.silence_seconds
        for message in self._measurer.ask(request, silence_seconds=silence, on_wait=self.on_wait):
            self.on_wait()
            if message["type"] == "samples":
                samples.extend(map(unpack_sample, message["samples"]))
            elif message["type"] == "progress":
                self.on_progress(entry, message["done"], message["total"])
            elif message["type"] == "failure":
                raise error_of(message)
        return tuple(samples), message["outcome"]

    def _after_death(self, entry: Entry, error: WorkerError) -> Measurement | None:
        if entry.tries < 2:
            log.warning("step %d: %s; trying once more", entry.step, error)
            return self.measure(entry)
        self.ledger.settle(entry, CheckpointState.QUARANTINED, f"{error}, twice")
        log.error("step %d is not measured: %s, twice", entry.step, error)
        return None

    def _store(self, entry: Entry, samples: tuple[Sample, ...], outcome: Message) -> Measurement:
        try:
            return self._record(entry, samples, outcome)
        except StorageError:
            self.ledger.forgive(entry)  # the checkpoint is not to blame
            raise

    def _record(self, entry: Entry, samples: tuple[Sample, ...], outcome: Message) -> Measurement:
        history = StoredHistory(self.store, entry.attempt, entry.step, samples)
        findings = tuple(finding for detector in self.detectors for finding in detector.judge(history))
        problems = "; ".join(outcome["problems"])[:MAX_REASON_CHARACTERS]
        state = CheckpointState.PARTIAL if problems else CheckpointState.MEASURED
        record = CheckpointRecord(
            attempt=0,
            step=entry.step,
            path=str(self.root / entry.name),
            state=state,
            reason=problems,
            fingerprint=entry.fingerprint,
            format=outcome["format"],
            bytes_read=outcome["bytes_read"],
            seconds=outcome["seconds"],
        )
        self.store.record_measurement(entry.attempt, record, samples, findings)
        settled = self.ledger.settle(entry, state, problems)
        self._log(settled, samples, outcome)
        self._drop_other_attempts(entry)
        return Measurement(settled, samples, findings, outcome)

    def _log(self, entry: Entry, samples: tuple[Sample, ...], outcome: Message) -> None:
        log.info(
            "step %d %s: %d samples in %.1f s, %.1f MB read",
            entry.step,
            entry.state,
            len(samples),
            outcome["seconds"],
            outcome["bytes_read"] / 1e6,
        )
        for text in [*outcome["problems"], *outcome["notes"]]:
            if text not in self._said:  # once a run, not once a checkpoint
                self._said.add(text)
                log.warning("step %d: %s", entry.step, text)

    # Requests --------------------------------------------------------------------------------------

    def _request(self, entry: Entry) -> MeasureRequest:
        settings = self.settings
        previous = self.ledger.measured_before(entry)
        return MeasureRequest(
            target=Source(entry.step, str(self.root / entry.name)),
            bases=tuple(self._bases(previous)),
            heads=HeadCounts(settings.heads, settings.kv_heads, settings.head_dim),
            config=str(settings.model_config_file.absolute()) if settings.model_config_file else "",
            log_after=previous[0].step if previous else -1,
            device=settings.device,
            cache=self._cache_order(entry, previous) if self.caching else None,
        )

    def _bases(self, previous: tuple[Entry, ...]) -> list[Base]:
        bases = []
        for lag in self.settings.lags:
            if lag <= len(previous):
                earlier = 2 * lag if 2 * lag <= min(self._depth, len(previous)) else 0
                bases.append(
                    Base(
                        lag,
                        self._source(previous[lag - 1]),
                        self._source(previous[earlier - 1]) if earlier else None,
                    )
                )
        return bases

    @property
    def _depth(self) -> int:
        """How many checkpoints back tensors are needed: for the longest lag, and persistence over lag 1."""
        return max(2, *self.settings.lags)

    def _source(self, entry: Entry) -> Source:
        cached = str(self._cached(entry)) if self.caching else ""
        return Source(entry.step, str(self.root / entry.name), entry.signature, cached)

    def _cache_order(self, entry: Entry, previous: tuple[Entry, ...]) -> CacheOrder:
        keep = tuple(str(self._cached(other)) for other in previous[: self._depth - 1])
        return CacheOrder(str(self._cached(entry)), keep, self.settings.cache_bytes)

    def _cached(self, entry: Entry) -> Path:
        return self._cache_directory / str(entry.attempt) / f"step-{entry.step:020d}.safetensors"

    @property
    def _cache_directory(self) -> Path:
        return self.settings.state_dir.expanduser().absolute() / "base-cache" / str(self.run.id)

    def _drop_other_attempts(self, entry: Entry) -> None:
        """A difference never crosses attempts: what other attempts left in the cache is of no use."""
        if not self._cache_directory.is_dir():
            return
        for directory in self._cache_directory.iterdir():
            if directory.name != str(entry.attempt):
                shutil.rmtree(directory, ignore_errors=True)


def measuring_worker(settings: Settings) -> Worker:
    """The process that computes, kept away from every GPU that was not named."""
    threads = str(settings.threads)
    environment = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, **RETURN_MEMORY}
    if settings.device == "cpu":
        environment["CUDA_VISIBLE_DEVICES"] = ""
    return Worker("measure", (threads,), environment=environment)


def catalogue(measurer: Worker, settings: Settings) -> tuple[Metric, ...]:
    """Every metric that can be measured, as the measuring process knows them.

    Raises:
        ConfigError: the device cannot be used.
    """
    request = {"ask": "catalogue", "device": settings.device}
    *_, answer = measurer.ask(request, silence_seconds=settings.silence_seconds)
    if answer["type"] == "failure":
        raise error_of(answer)
    return tuple(Metric(**fields) for fields in answer["metrics"])


def _fields(known: Any) -> list[Any]:
    return [known.step, known.signature, known.digest]


def _scan(fields: Message) -> Scan:
    sightings = tuple(
        Sighting(**{**each, "condition": Condition(each["condition"])}) for each in fields["sightings"]
    )
    return Scan(fields["root_error"], sightings, tuple(fields["ignored"]))

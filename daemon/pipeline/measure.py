"""Measure one checkpoint: one layer at a time, every monitor on it, against every base.

A layer's tensors are read once; each base's once per lag. What one monitor cannot compute costs only
that reading: it is isolated here, and the checkpoint is then called partial.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch

from foreshock.daemon.errors import CheckpointError, UnsupportedCheckpoint
from foreshock.daemon.monitors import MONITORS
from foreshock.daemon.monitors.base import LayerChange, LayerState, Monitor, Reading
from foreshock.daemon.pipeline.base_cache import CacheWriter, evict
from foreshock.daemon.pipeline.configuration import CONFIG_KEY
from foreshock.daemon.pipeline.opened import OpenedCheckpoint, open_source
from foreshock.daemon.pipeline.request import CacheOrder, MeasureRequest, Source
from foreshock.daemon.pipeline.training_log import read_training_log
from foreshock.daemon.pipeline.zero_updates import ZeroUpdates
from foreshock.daemon.roles.base import Layer
from foreshock.storage.records import Sample, SeriesKey

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it is: layers done, of how many."""

    done: int
    total: int


@dataclass(slots=True)
class Outcome:
    """What there is to say when all layers are done.

    Attributes:
        layers: that have a role.
        bytes_read: from the checkpoint's own files, not from the base cache.
        problems: why the checkpoint is only partly measured; empty when it is whole.
        notes: what a person should know all the same.
    """

    format: str
    architecture: str
    layers: int
    bytes_read: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


Event = Progress | list[Sample] | Outcome


@dataclass(frozen=True, slots=True)
class _OpenedBase:
    lag: int
    before: OpenedCheckpoint
    earlier: OpenedCheckpoint | None


def measure(request: MeasureRequest, clock: Callable[[], float] = time.monotonic) -> Iterator[Event]:
    """Samples layer by layer with progress between them, and the outcome last.

    Raises:
        UnsupportedCheckpoint: no parameter has a role that any monitor looks at.
        VanishedCheckpoint: it was deleted or changed meanwhile: discard what came before.
        CheckpointError: its headers cannot be read.
    """
    started = clock()
    target = open_source(request.target, request.heads, request.config)
    if not target.roles.layers:
        raise UnsupportedCheckpoint(
            f"{request.target.path}: none of its {len(target.checkpoint.tensors)} tensors has a known role"
            " (attention or router); `foreshock inspect` lists their names"
        )
    outcome = Outcome(target.checkpoint.format, target.roles.architecture, len(target.roles.layers))
    outcome.notes += [*target.checkpoint.notes, *target.roles.warnings]
    path, step = Path(request.target.path), request.target.step
    yield list(read_training_log(path, after=request.log_after, until=step))
    with _cache_writer(request.cache, target, outcome) or nullcontext() as writer:
        work = _Measurement(request, target, writer, outcome)
        for done, layer in enumerate(target.roles.layers):
            yield Progress(done, outcome.layers)
            yield list(work.of_layer(layer))
        yield list(work.zero_updates.explained())
        yield Progress(outcome.layers, outcome.layers)
        target.verify_unchanged()
        if writer is not None and request.cache is not None:
            outcome.notes += _keep(writer, request.cache)
    outcome.problems += target.problems
    outcome.bytes_read = target.files.bytes_read
    outcome.seconds = clock() - started
    yield outcome


class _Measurement:
    """One checkpoint's work: what is open, and where complaints go."""

    def __init__(
        self, request: MeasureRequest, target: OpenedCheckpoint, writer: CacheWriter | None, outcome: Outcome
    ) -> None:
        self._target = target
        self._device = torch.device(request.device)
        self._keep = writer.write if writer else None
        self._outcome = outcome
        self.zero_updates = ZeroUpdates()
        self._bases = list(self._open_bases(request))

    def of_layer(self, layer: Layer) -> Iterator[Sample]:
        """All samples of one layer."""
        after = self._target.load(layer, self._device, self._keep)
        yield from self._samples(lambda monitor: monitor.of_state(after), after, None)
        for base in self._bases:
            change = self._change(base, layer, after)
            if change is not None:
                yield from self._samples(partial(_of_change, change), after, base)

    def _open_bases(self, request: MeasureRequest) -> Iterator[_OpenedBase]:
        """The bases that are still there; those that are not are noted."""
        for base in request.bases:
            try:
                before = open_source(base.before, request.heads, request.config)
            except CheckpointError as error:
                if request.bases_required:
                    raise
                self._outcome.notes.append(f"no differences over lag {base.lag}: {error}")
            else:
                yield _OpenedBase(base.lag, before, self._open_earlier(base.earlier, request))

    def _open_earlier(self, source: Source | None, request: MeasureRequest) -> OpenedCheckpoint | None:
        if source is None:
            return None
        try:
            return open_source(source, request.heads, request.config)
        except CheckpointError:
            return None  # only persistence needs it, and says itself that it is undefined

    def _change(self, base: _OpenedBase, layer: Layer, after: LayerState) -> LayerChange | None:
        """The layer now, at the base, and at the base's own base; None when the base lacks it."""
        try:
            before = self._load(base.before, layer)
            earlier = self._load(base.earlier, layer)
        except CheckpointError as error:
            self._outcome.problems.append(f"layer {layer.index}, lag {base.lag}: {error}")
            return None
        if before is None:
            self._outcome.notes.append(f"layer {layer.index} is not in step {base.before.step}")
            return None
        return LayerChange(before, after, base.lag, earlier)

    def _load(self, opened: OpenedCheckpoint | None, layer: Layer) -> LayerState | None:
        same = opened.layer(layer.index) if opened else None
        return opened.load(same, self._device) if opened and same else None

    def _samples(
        self, read: Callable[[Monitor], Iterable[Reading]], after: LayerState, base: _OpenedBase | None
    ) -> Iterator[Sample]:
        lag, base_step = (base.lag, base.before.step) if base else (0, None)
        index, dtypes = after.layer.index, {name: after.dtypes[r] for r, name in after.names.items()}
        for monitor in MONITORS:
            for reading in self._isolated(monitor, read, index):
                key = SeriesKey(reading.metric, index, reading.role, reading.parameter, reading.unit, lag)
                sample = Sample(key, after.step, reading.value, base_step, reading.reason)
                if self.zero_updates.pass_on(sample, dtypes.get(reading.parameter, "float32")):
                    yield sample

    def _isolated(
        self, monitor: Monitor, read: Callable[[Monitor], Iterable[Reading]], layer: int
    ) -> list[Reading]:
        """The monitor's readings; none, and a problem on record, when it fails."""
        try:
            return list(read(monitor))
        except Exception as error:
            name = type(monitor).__name__
            log.exception("%s failed on layer %d", name, layer)
            self._outcome.problems.append(f"layer {layer}: {name} failed: {error}")
            return []


def _of_change(change: LayerChange, monitor: Monitor) -> Iterable[Reading]:
    return monitor.of_change(change)


def _cache_writer(order: CacheOrder | None, target: OpenedCheckpoint, outcome: Outcome) -> CacheWriter | None:
    """Where to keep the tensors; None, and a note, when the cache cannot be written."""
    if order is None:
        return None
    tensors = [target.checkpoint.tensors[name] for name in target.roles.parameters]
    metadata = {CONFIG_KEY: json.dumps(dict(target.config.values), default=str)}
    try:
        return CacheWriter(Path(order.target), tensors, metadata)
    except OSError as error:
        outcome.notes.append(_lost(f"{order.target}: {error.strerror}"))
        return None


def _keep(writer: CacheWriter, order: CacheOrder) -> list[str]:
    """Finish the cached copy and make room; notes on what was lost."""
    failure = writer.finish()
    notes = [_lost(failure)] if failure else []
    try:
        crowded = evict(order)
    except OSError as error:
        return [*notes, f"base cache: {order.target}: {error.strerror}; no room was made"]
    if crowded:
        notes.append(f"base cache: over {order.max_bytes} bytes, dropped {', '.join(crowded)}")
    return notes


def _lost(reason: str) -> str:
    return f"base cache: {reason}; later differences to this step cannot be measured"

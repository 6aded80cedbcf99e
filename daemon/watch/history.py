"""The past as detectors see it: stored samples, and the ones that are about to be stored."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from foreshock.daemon.detectors.base import UNTRUSTED, Point
from foreshock.storage.records import Sample, SeriesKey
from foreshock.storage.store import Store

DEPTH = 64
"""Points of a series that detectors are shown."""


class StoredHistory:
    """One attempt's samples up to a step.

    Args:
        attempt: id of the attempt.
        fresh: samples of the step under judgement, not stored yet.
    """

    def __init__(self, store: Store, attempt: int, step: int, fresh: Sequence[Sample]) -> None:
        self._store = store
        self._attempt = attempt
        self._step = step
        self._fresh: dict[tuple[str, str, int], list[Sample]] = {}
        for sample in fresh:
            key = sample.key
            self._fresh.setdefault((key.metric, key.role, key.lag), []).append(sample)

    @property
    def step(self) -> int:
        """The step under judgement."""
        return self._step

    def points(self, metric: str, *, role: str, lag: int) -> Iterable[tuple[SeriesKey, Sequence[Point]]]:
        """Every series of a metric with its most recent trusted points, oldest first."""
        past = self._store.history(
            self._attempt, metric, role=role, lag=lag, before_step=self._step, limit=DEPTH
        )
        series: dict[SeriesKey, list[Point]] = {}
        for each in past:
            stored = zip(each.steps, each.values, each.reasons, strict=True)
            series[each.key] = [
                point for step, value, reason in stored for point in _trusted(step, value, reason)
            ]
        for sample in self._fresh.get((metric, role, lag), ()):
            series.setdefault(sample.key, []).extend(_trusted(sample.step, sample.value, sample.reason))
        return series.items()


def _trusted(step: int, value: float | None, reason: str) -> Iterator[Point]:
    if value is not None and math.isfinite(value) and reason not in UNTRUSTED:
        yield Point(step, value)

"""What a detector sees and says.

A detector looks at the history of a run's series up to one step and yields findings. It keeps no state
and knows no database: the history is given to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from foreshock.storage.records import Finding, SeriesKey

UNTRUSTED = frozenset({"below_resolution", "nonfinite"})
"""Reasons that keep a sample away from every detector."""


@dataclass(frozen=True, slots=True)
class Point:
    """One trusted, finite sample."""

    step: int
    value: float


class History(Protocol):
    """The current attempt's samples, up to and including the step under judgement."""

    @property
    def step(self) -> int:
        """The step under judgement."""
        ...

    def points(self, metric: str, *, role: str, lag: int) -> Iterable[tuple[SeriesKey, Sequence[Point]]]:
        """Every series of a metric with its most recent trusted points, oldest first."""
        ...


class Detector:
    """Base of all detectors."""

    name: ClassVar[str]

    def judge(self, history: History) -> Iterable[Finding]:
        """Findings about the step under judgement."""
        raise NotImplementedError

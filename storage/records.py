"""The nouns of the time series, as plain values: no database library is needed to make or read one.

run: one checkpoint directory · attempt: a stretch of a run without a step back · sample: one number ·
series: the samples of one metric, parameter and unit over steps · finding: a detector's verdict.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

Kind = Literal["finite", "nan", "+inf", "-inf", "undefined"]
Severity = Literal["info", "warning", "critical"]


class CheckpointState(StrEnum):
    """What became of a checkpoint; every one ever listed ends in one of the last four."""

    PENDING = "pending"  # seen, not complete yet or not reached yet
    MEASURED = "measured"
    PARTIAL = "partial"  # measured, but some tensors could not be read
    MISSED = "missed"  # deleted or overwritten before it could be read
    QUARANTINED = "quarantined"  # complete and unusable: corrupt, unsupported, unreadable


@dataclass(frozen=True, slots=True)
class Metric:
    """A catalogue entry: what a number means.

    Attributes:
        name: `family.quantity`, for example `update.effective_rank`.
        unit: of the value: `1`, `nats`, `elements` …
        low: smallest possible value, or None.
        high: largest possible value, or None when it depends on the shape.
        source: where the formula comes from.
    """

    name: str
    description: str
    unit: str = "1"
    low: float | None = None
    high: float | None = None
    source: str = ""


@dataclass(frozen=True, slots=True, order=True)
class SeriesKey:
    """What a series measures.

    Attributes:
        layer: index of the transformer block; None outside the blocks.
        role: `q`, `k`, `v`, `o`, `qk` (a product of q and k), `router`, `training` …
        parameter: name of the tensor measured, wrapper prefixes removed; several are joined by ` + `.
        unit: empty for the whole matrix, else `head.3`, `expert.5`.
        lag: how many checkpoints back the base lies; 0 where only one checkpoint is looked at.
    """

    metric: str
    layer: int | None
    role: str
    parameter: str
    unit: str = ""
    lag: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """One number at one step.

    Attributes:
        value: None when the quantity is undefined (the spectrum of a zero matrix); may be NaN or ±Inf.
        base_step: the earlier step of a difference; None at lag 0.
        reason: why the value is undefined or not to be trusted (`below_resolution`, `frozen_parameter`,
            `identical_checkpoint`, `nonfinite` …); empty when there is nothing to say.
    """

    key: SeriesKey
    step: int
    value: float | None
    base_step: int | None = None
    reason: str = ""

    @property
    def kind(self) -> Kind:
        """Finite or not, told apart so that no database or JSON encoder can lose it."""
        return kind_of(self.value)


def kind_of(value: float | None) -> Kind:
    """Name the kind of a value."""
    if value is None:
        return "undefined"
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "+inf" if value > 0 else "-inf"
    return "finite"


@dataclass(frozen=True, slots=True)
class Run:
    """One checkpoint directory."""

    id: int
    name: str
    path: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Attempt:
    """A stretch of a run in which the step never goes back; `ordinal` counts from 1."""

    id: int
    run_id: int
    ordinal: int
    first_step: int
    opened_at: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """One checkpoint of the ledger.

    Attributes:
        fingerprint: digest of names, sizes and headers: the same content gives the same text.
        format: which reader opened it; empty until one did.
        bytes_read: from the checkpoint's own files.
        seconds: that measuring took.
    """

    attempt: int
    step: int
    path: str
    state: CheckpointState
    reason: str = ""
    fingerprint: str = ""
    format: str = ""
    seen_at: datetime | None = None
    settled_at: datetime | None = None
    bytes_read: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Finding:
    """A detector's verdict at one step.

    Attributes:
        rule: name of the detector.
        subject: what it speaks of, for example `layer 3, q`; unique with rule and step in an attempt.
        severity: `info`, `warning` or `critical`.
        message: one sentence for a person.
        evidence: the numbers it stands on, JSON-encodable.
    """

    rule: str
    subject: str
    step: int
    severity: Severity
    message: str
    layer: int | None = None
    evidence: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredFinding:
    """A finding as the database holds it; `announced_at` is None until every notifier took it."""

    id: int
    run: str
    attempt: int
    finding: Finding
    found_at: datetime
    announced_at: datetime | None


@dataclass(frozen=True, slots=True)
class Series:
    """Samples of one key in step order.

    Attributes:
        attempt: ordinal of the attempt.
        steps, values, base_steps, reasons: equally long.
        source_points: how many samples there were before any thinning.
    """

    attempt: int
    key: SeriesKey
    steps: tuple[int, ...]
    values: tuple[float | None, ...]
    base_steps: tuple[int | None, ...]
    reasons: tuple[str, ...]
    source_points: int


@dataclass(frozen=True, slots=True)
class Heatmap:
    """One metric of one role over layers and steps, its units taken together.

    Attributes:
        layers: ascending; one row each. What lies outside of the blocks is left out.
        steps: ascending; one column each.
        values: rows of equal length; None where there is no finite value.
        attempt: ordinal of the attempt; 0 when the run has none.
    """

    layers: tuple[int, ...]
    steps: tuple[int, ...]
    values: tuple[tuple[float | None, ...], ...]
    attempt: int


@dataclass(frozen=True, slots=True)
class Facet:
    """A choice that a run offers: series that share metric, role and lag.

    Attributes:
        has_whole: whether some are of the whole matrix.
        has_heads: whether some are of single heads.
        has_experts: whether some are of single experts.
        series: how many there are, over all attempts.
        layers: how many blocks they are of; 0 when they lie outside.
    """

    metric: str
    role: str
    lag: int
    has_whole: bool
    has_heads: bool
    has_experts: bool
    series: int
    layers: int


@dataclass(frozen=True, slots=True)
class Status:
    """What the watcher last said of itself; the API judges readiness from it.

    Attributes:
        detail: JSON-encodable: `watch_mode`, `backlog`, `last_error` …
    """

    component: str
    updated_at: datetime
    healthy: bool
    detail: dict[str, Any]

"""What the API replies, as models; keys are only ever added.

A value that JSON cannot hold (NaN, ±Inf) and a value that is undefined are both `null`; the kind beside
it tells which. Times are UTC.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from foreshock.api.text import Text
from foreshock.storage.queries.overview import Statistic, UnitKind
from foreshock.storage.records import CheckpointState, Kind, Series, Severity, StoredFinding, kind_of


def _utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)


def _as_json_number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


Moment = Annotated[datetime, AfterValidator(_utc)]
"""An RFC 3339 time in UTC."""

Value = Annotated[float | None, AfterValidator(_as_json_number)]
"""A finite number or null."""


class Reply(BaseModel):
    """Base of all replies; they are built from records, attribute by attribute."""

    model_config = ConfigDict(from_attributes=True, frozen=True)


class MetricItem(Reply):
    """A catalogue entry: what a number means."""

    name: Text
    description: Text
    unit: Text
    low: Value
    high: Value
    source: Text


class Catalogue(Reply):
    """Every metric that was ever stored."""

    items: list[MetricItem]


class AttemptItem(Reply):
    """A stretch of a run in which the step never goes back."""

    ordinal: int
    first_step: int
    opened_at: Moment
    reason: Text


class RunItem(Reply):
    """One checkpoint directory, and how far it is."""

    id: int
    name: Text
    path: Text
    created_at: Moment
    attempts: list[AttemptItem]
    latest_step: int | None = Field(description="Of the current attempt, complete or not.")
    analyzed_step: int | None = Field(description="The newest measured step of the current attempt.")
    analyzed_at: Moment | None


class RunPage(Reply):
    """Runs, the newest first."""

    items: list[RunItem]
    next_cursor: str | None


class CheckpointItem(Reply):
    """One checkpoint of the ledger."""

    attempt: int
    step: int
    path: Text
    state: CheckpointState
    reason: Text
    format: Text
    fingerprint: Text
    seen_at: Moment | None
    settled_at: Moment | None
    bytes_read: int
    seconds: Value


class CheckpointPage(Reply):
    """Checkpoints, the newest first; `counts` speaks of the whole run, not of this page."""

    run: Text
    counts: dict[CheckpointState, int]
    items: list[CheckpointItem]
    next_cursor: str | None


class SeriesItem(Reply):
    """Samples of one metric, parameter and unit in step order; the lists are equally long."""

    attempt: int
    metric: Text
    layer: int | None
    role: Text
    parameter: Text
    unit: Text = Field(description="`head.3`, `expert.5`; empty for the whole matrix.")
    lag: int
    source_points: int = Field(description="How many samples there were before thinning.")
    steps: list[int]
    values: list[Value]
    kinds: list[Kind]
    base_steps: list[int | None]
    reasons: list[Text]

    @classmethod
    def of(cls, series: Series) -> SeriesItem:
        """The series with the kind of each value told."""
        key = series.key
        return cls(
            attempt=series.attempt,
            metric=key.metric,
            layer=key.layer,
            role=key.role,
            parameter=key.parameter,
            unit=key.unit,
            lag=key.lag,
            source_points=series.source_points,
            steps=list(series.steps),
            values=list(series.values),
            kinds=[kind_of(value) for value in series.values],
            base_steps=list(series.base_steps),
            reasons=list(series.reasons),
        )


class SeriesPage(Reply):
    """Series of one metric."""

    run: Text
    metric: Text
    max_points: int = Field(description="Points that each series was thinned to, at most.")
    downsampled: bool
    truncated: bool = Field(description="More series follow: ask with `next_cursor`.")
    next_cursor: str | None
    series: list[SeriesItem]


class HeatmapReply(Reply):
    """One number for every layer and step; rows are layers, columns are steps."""

    run: Text
    attempt: int
    metric: Text
    role: Text
    lag: int
    statistic: Statistic
    units: UnitKind
    layers: list[int]
    steps: list[int]
    values: list[list[Value]]


class FacetItem(Reply):
    """A choice that a run offers: series that share metric, role and lag."""

    metric: Text
    role: Text
    lag: int
    has_whole: bool
    has_heads: bool
    has_experts: bool
    series: int
    layers: int


class FacetList(Reply):
    """What the run has series of."""

    run: Text
    items: list[FacetItem]


class FindingItem(Reply):
    """A detector's verdict at one step."""

    id: int
    attempt: int
    rule: Text
    subject: Text
    step: int
    severity: Severity
    message: Text
    layer: int | None
    evidence: dict[Text, Any]
    found_at: Moment
    announced_at: Moment | None

    @classmethod
    def of(cls, stored: StoredFinding) -> FindingItem:
        """The finding with what the database knows of it."""
        finding = stored.finding
        return cls(
            id=stored.id,
            attempt=stored.attempt,
            rule=finding.rule,
            subject=finding.subject,
            step=finding.step,
            severity=finding.severity,
            message=finding.message,
            layer=finding.layer,
            evidence=finding.evidence,
            found_at=stored.found_at,
            announced_at=stored.announced_at,
        )


class FindingList(Reply):
    """Findings, the newest first."""

    run: Text
    items: list[FindingItem]


class ComponentStatus(Reply):
    """What a component last said of itself; `fresh` is our judgement of when it said so."""

    component: Text
    updated_at: Moment
    healthy: bool
    fresh: bool
    detail: dict[Text, Any]


class StatusReply(Reply):
    """All components."""

    version: Text
    components: list[ComponentStatus]


class Check(Reply):
    """One condition of readiness."""

    name: Text
    ok: bool
    detail: Text


class Readiness(Reply):
    """Whether the service is of use."""

    ready: bool
    checks: list[Check]


class Liveness(Reply):
    """The process answers."""

    alive: bool = True


class VersionReply(Reply):
    """The version that answers."""

    version: Text

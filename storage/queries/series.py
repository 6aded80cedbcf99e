"""Samples on their way out, as series."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, func, select

from foreshock.storage import values
from foreshock.storage.queries.runs import find_attempt
from foreshock.storage.records import Sample, Series, SeriesKey
from foreshock.storage.tables import OUTSIDE_BLOCKS, attempts, samples, series
from foreshock.storage.values import MAX_WHOLE, decoded, nearest_whole

ANY_UNIT = "*"

KEY = (series.c.metric, series.c.layer, series.c.role, series.c.parameter, series.c.unit, series.c.lag)
"""In the order of `SeriesKey`, by which series are sorted."""

POINT = (
    samples.c.series_id,
    samples.c.step,
    samples.c.value,
    samples.c.kind,
    samples.c.base_step,
    samples.c.reason,
)

NumberedKey = tuple[int, SeriesKey]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesFilter:
    """Which series of a run, and which stretch of them; None means any.

    Attributes:
        attempt: ordinal; None for the latest.
        unit: empty for the whole matrix; `*` for any, as None.
        from_step: the first step wanted.
        to_step: the last step wanted.
    """

    metric: str
    attempt: int | None = None
    layer: int | None = None
    role: str | None = None
    parameter: str | None = None
    unit: str | None = None
    lag: int | None = None
    from_step: int | None = None
    to_step: int | None = None

    def conditions(self) -> Iterator[ColumnElement[bool]]:
        """What rows of `series` must meet."""
        yield series.c.metric == values.name(self.metric)
        if self.layer is not None:
            yield series.c.layer == nearest_whole(self.layer)
        if self.role is not None:
            yield series.c.role == values.name(self.role)
        if self.parameter is not None:
            yield series.c.parameter == values.name(self.parameter)
        if self.unit not in {None, ANY_UNIT}:
            yield series.c.unit == values.name(self.unit or "")
        if self.lag is not None:
            yield series.c.lag == nearest_whole(self.lag)


def select_series(
    connection: Connection, run_id: int, wanted: SeriesFilter, limit: int
) -> tuple[Series, ...]:
    """The first series by key that match; each with its samples in the stretch, which may be none."""
    attempt = find_attempt(connection, run_id, wanted.attempt)
    if attempt is None:
        return ()
    matching = (
        select(series.c.id, *KEY)
        .where(series.c.attempt_id == attempt.id, *wanted.conditions())
        .order_by(*KEY)
        .limit(limit)
    )
    points = (
        select(*POINT)
        .where(samples.c.series_id.in_(select(matching.subquery().c.id)))
        .order_by(samples.c.series_id, samples.c.step)
    )
    if wanted.from_step is not None:
        points = points.where(samples.c.step >= nearest_whole(wanted.from_step))
    if wanted.to_step is not None:
        points = points.where(samples.c.step <= nearest_whole(wanted.to_step))
    return _assembled(attempt.ordinal, _numbered(connection, matching), connection.execute(points))


def select_history(
    connection: Connection, attempt_id: int, wanted: SeriesFilter, *, before_step: int | None, limit: int
) -> tuple[Series, ...]:
    """The last samples below a step of every series that matches.

    Args:
        before_step: None for no bound.
        limit: samples of each series, at least 1.
    """
    end = MAX_WHOLE if before_step is None else nearest_whole(before_step)
    below = samples.c.step <= end if before_step is None else samples.c.step < end
    oldest = (
        select(samples.c.step)
        .where(samples.c.series_id == series.c.id, below)
        .order_by(samples.c.step.desc())
        .limit(1)
        .offset(limit - 1)
        .scalar_subquery()
    )
    mine = and_(series.c.attempt_id == attempt_id, *wanted.conditions())
    since = _bounds(mine, func.coalesce(oldest, -MAX_WHOLE - 1))
    points = (
        select(*POINT)
        .join(since, since.c.id == samples.c.series_id)
        .where(below, samples.c.step >= since.c.step)
        .order_by(samples.c.series_id, samples.c.step)
    )
    ordinal = connection.scalar(select(attempts.c.ordinal).where(attempts.c.id == attempt_id)) or 0
    keys = _numbered(connection, select(series.c.id, *KEY).where(mine).order_by(*KEY))
    return _assembled(ordinal, keys, connection.execute(points))


def select_latest(connection: Connection, run_id: int) -> tuple[tuple[SeriesKey, Sample], ...]:
    """The newest sample of every series of the run's latest attempt, by key."""
    attempt = find_attempt(connection, run_id, None)
    if attempt is None:
        return ()
    newest = select(func.max(samples.c.step)).where(samples.c.series_id == series.c.id).scalar_subquery()
    at = _bounds(series.c.attempt_id == attempt.id, newest)
    question = (
        select(*KEY, *POINT[1:])
        .join(series, series.c.id == samples.c.series_id)
        .join(at, and_(at.c.id == samples.c.series_id, at.c.step == samples.c.step))
        .order_by(*KEY)
    )
    rows = connection.execute(question)
    return tuple(_latest(_key(row[: len(KEY)]), row[len(KEY) :]) for row in rows)


def _bounds(mine: ColumnElement[bool], step: ColumnElement[Any]) -> Any:
    """One step for each series, worked out once a series and not once a sample."""
    bounds = select(series.c.id, step.label("step")).where(mine).cte("bounds")
    return bounds.prefix_with("MATERIALIZED", dialect="postgresql")


def _numbered(connection: Connection, question: Select[*tuple[Any, ...]]) -> list[NumberedKey]:
    return [(number, _key(key)) for number, *key in connection.execute(question)]


def _key(columns: Sequence[Any]) -> SeriesKey:
    metric, layer, *rest = columns
    return SeriesKey(metric, None if layer == OUTSIDE_BLOCKS else layer, *rest)


def _latest(key: SeriesKey, point: Sequence[Any]) -> tuple[SeriesKey, Sample]:
    step, value, kind, base_step, reason = point
    return key, Sample(key, step, decoded(value, kind), base_step, reason)


def _assembled(attempt: int, keys: Iterable[NumberedKey], points: Iterable[Any]) -> tuple[Series, ...]:
    """Series in the order of the keys.

    Args:
        points: by series and step.
    """
    found = {number: tuple(group) for number, group in groupby(points, key=itemgetter(0))}
    return tuple(_series(attempt, key, found.get(number, ())) for number, key in keys)


def _series(attempt: int, key: SeriesKey, points: Sequence[Any]) -> Series:
    if not points:
        return Series(attempt, key, (), (), (), (), 0)
    _number, steps, numbers, kinds, base_steps, reasons = zip(*points, strict=True)
    return Series(attempt, key, steps, tuple(map(decoded, numbers, kinds)), base_steps, reasons, len(steps))

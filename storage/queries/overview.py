"""Series taken together: heatmaps, and the choices that a run offers."""

from __future__ import annotations

import statistics
from array import array
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, case, distinct, func, literal, select, true

from foreshock.storage import values
from foreshock.storage.queries.runs import find_attempt
from foreshock.storage.records import Facet, Heatmap
from foreshock.storage.tables import OUTSIDE_BLOCKS, attempts, samples, series

Statistic = Literal["min", "mean", "max", "median"]
UnitKind = Literal["whole", "head", "expert", "any"]

Cells = Mapping[tuple[int, int], "array[float]"]
"""The finite values of a layer at a step."""


def select_heatmap(
    connection: Connection,
    run_id: int,
    metric: str,
    *,
    role: str,
    lag: int,
    ordinal: int | None,
    statistic: Statistic,
    unit_kind: UnitKind,
) -> Heatmap:
    """One number for every layer and step of an attempt."""
    attempt = find_attempt(connection, run_id, ordinal)
    if attempt is None:
        return Heatmap((), (), (), ordinal or 0)
    question = (
        select(series.c.layer, samples.c.step, samples.c.value)
        .join(series, series.c.id == samples.c.series_id)
        .where(
            series.c.attempt_id == attempt.id,
            series.c.metric == values.name(metric),
            series.c.role == values.name(role),
            series.c.lag == values.nearest_whole(lag),
            series.c.layer != OUTSIDE_BLOCKS,
            _of_kind(unit_kind),
        )
    )
    cells: dict[tuple[int, int], array[float]] = {}
    for layer, step, value in connection.execute(question):
        finite = cells.setdefault((layer, step), array("d"))
        if value is not None:
            finite.append(value)
    return _heatmap(cells, STATISTICS[statistic], attempt.ordinal)


def select_facets(connection: Connection, run_id: int) -> tuple[Facet, ...]:
    """Which metrics, roles and lags there are, over all attempts."""
    choice = (series.c.metric, series.c.role, series.c.lag)
    in_blocks = case((series.c.layer != OUTSIDE_BLOCKS, series.c.layer))
    question = (
        select(
            *choice,
            _any(_of_kind("whole")),
            _any(_of_kind("head")),
            _any(_of_kind("expert")),
            func.count(),
            func.count(distinct(in_blocks)),
        )
        .join(attempts, attempts.c.id == series.c.attempt_id)
        .where(attempts.c.run_id == run_id)
        .group_by(*choice)
        .order_by(*choice)
    )
    return tuple(_facet(*row) for row in connection.execute(question))


def _of_kind(kind: UnitKind) -> ColumnElement[bool]:
    if kind == "any":
        return true()
    if kind == "whole":
        return series.c.unit == ""
    prefix = f"{kind}."
    return func.substr(series.c.unit, 1, len(prefix)) == prefix


def _any(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return func.max(case((condition, literal(1)), else_=literal(0)))


def _facet(metric: str, role: str, lag: int, *rest: int) -> Facet:
    whole, heads, experts, num_series, num_layers = rest
    return Facet(metric, role, lag, bool(whole), bool(heads), bool(experts), num_series, num_layers)


def _heatmap(cells: Cells, statistic: Callable[[Any], float], attempt: int) -> Heatmap:
    layers = sorted({layer for layer, _step in cells})
    steps = sorted({step for _layer, step in cells})

    def row(layer: int) -> Iterator[float | None]:
        for step in steps:
            finite = cells.get((layer, step))
            yield statistic(finite) if finite else None

    return Heatmap(tuple(layers), tuple(steps), tuple(tuple(row(layer)) for layer in layers), attempt)


def _mean(finite: array[float]) -> float:
    """Divided before it is added up: the sum of large values may not be finite."""
    return sum(value / len(finite) for value in finite)


def _median(finite: array[float]) -> float:
    return statistics.median_low(finite) / 2 + statistics.median_high(finite) / 2


STATISTICS: Mapping[Statistic, Callable[[Any], float]] = {
    "min": min,
    "mean": _mean,
    "max": max,
    "median": _median,
}

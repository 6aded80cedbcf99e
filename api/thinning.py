"""Fewer points of a series, without hiding what matters: its ends, its extremes and its gaps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from foreshock.storage.records import Kind, Series, kind_of

MIN_POINTS = 8
"""Below this there is no room for the ends and the extremes of even one bucket."""

_URGENCY: tuple[Kind, ...] = ("nan", "+inf", "-inf", "undefined")


def thin(series: Series, max_points: int) -> Series:
    """The series with at most `max_points` points.

    Kept are the first and the last point and, of every bucket of neighbours, the smallest and the
    largest finite value and one point without a finite value, so that a gap stays a gap.

    Args:
        max_points: at least `MIN_POINTS`.
    """
    if len(series.steps) <= max_points:
        return series
    kept = sorted(set(_kept(series.values, max_points)))
    return replace(
        series,
        steps=tuple(series.steps[i] for i in kept),
        values=tuple(series.values[i] for i in kept),
        base_steps=tuple(series.base_steps[i] for i in kept),
        reasons=tuple(series.reasons[i] for i in kept),
    )


def _kept(values: tuple[float | None, ...], max_points: int) -> Iterator[int]:
    """Indices of the points to keep; some come twice."""
    last = len(values) - 1
    yield 0
    yield last
    has_gaps = any(kind_of(value) != "finite" for value in values)
    num_buckets = (max_points - 2) // (3 if has_gaps else 2)
    for bucket in range(num_buckets):
        start, stop = (1 + (last - 1) * edge // num_buckets for edge in (bucket, bucket + 1))
        yield from _of_bucket(values, range(start, stop))


def _of_bucket(values: tuple[float | None, ...], bucket: range) -> Iterator[int]:
    finite: list[tuple[float, int]] = []
    gaps: list[tuple[int, int]] = []
    for index in bucket:
        value, kind = values[index], kind_of(values[index])
        if value is not None and kind == "finite":
            finite.append((value, index))
        else:
            gaps.append((_URGENCY.index(kind), index))
    if finite:
        yield min(finite)[1]
        yield max(finite)[1]
    if gaps:
        yield min(gaps)[1]

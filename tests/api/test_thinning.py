from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from foreshock.api.thinning import MIN_POINTS, thin
from foreshock.storage.records import Series, SeriesKey, kind_of


def series(values: list[float | None]) -> Series:
    key = SeriesKey("update.effective_rank", 0, "q", "w")
    steps = tuple(range(10, 10 * len(values) + 10, 10))
    reasons = tuple(f"reason {step}" for step in steps)
    return Series(1, key, steps, tuple(values), steps, reasons, len(values))


def test_a_series_that_fits_stays_as_it_is() -> None:
    short = series([1.0, None, 3.0] * 3)
    assert thin(short, 9) is short


def test_a_spike_of_one_point_survives() -> None:
    values: list[float | None] = [1.0] * 10_000
    values[6_543] = 99.0
    values[1_234] = -99.0
    thinned = thin(series(values), 100)
    assert max(thinned.values) == 99.0
    assert min(thinned.values) == -99.0
    assert len(thinned.steps) <= 100
    assert thinned.source_points == 10_000


def test_a_gap_of_one_point_survives() -> None:
    values: list[float | None] = [float(n % 7) for n in range(5_000)]
    values[2_500] = None
    thinned = thin(series(values), 50)
    at = thinned.values.index(None)
    assert thinned.steps[at] == 25_010
    assert thinned.reasons[at] == "reason 25010"


def test_an_infinite_value_is_kept_before_an_undefined_one() -> None:
    values: list[float | None] = [1.0] * 1_000
    values[500:510] = [None] * 10
    values[505] = math.inf
    assert math.inf in thin(series(values), 20).values


VALUES = st.one_of(st.none(), st.floats(width=32))


@given(st.lists(VALUES, min_size=1, max_size=300), st.integers(MIN_POINTS, 60))
def test_ends_extremes_and_gaps_always_survive(values: list[float | None], max_points: int) -> None:
    thinned = thin(series(values), max_points)
    finite = [value for value in values if value is not None and math.isfinite(value)]
    kept = [value for value in thinned.values if value is not None and math.isfinite(value)]
    assert len(thinned.steps) == len(thinned.values) == len(thinned.reasons) <= max(max_points, MIN_POINTS)
    assert (thinned.steps[0], thinned.steps[-1]) == (10, 10 * len(values))
    assert list(thinned.steps) == sorted(set(thinned.steps))
    if finite:
        assert (min(kept), max(kept)) == (min(finite), max(finite))
    gaps = any(kind_of(value) != "finite" for value in values)
    assert gaps == any(kind_of(value) != "finite" for value in thinned.values)

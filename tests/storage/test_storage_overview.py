"""Heatmaps and facets: series taken together."""

from __future__ import annotations

import math

import pytest

from foreshock.storage.records import Facet, Heatmap

RANK = "update.effective_rank"


@pytest.fixture
def heads(store, attempt, measured, sample):
    """Layer 0: heads 1, 2, 6 and an expert at step 10, one head at step 20; layer 3: only NaN."""
    values = {"head.0": 1.0, "head.1": 2.0, "head.2": 6.0, "expert.0": 100.0, "": -50.0}
    samples = [sample(10, value, unit=unit) for unit, value in values.items()]
    samples += [sample(10, math.nan, layer=3, unit="head.0"), sample(10, math.inf, unit="head.3")]
    samples += [sample(10, 1.0, layer=None, unit="head.0"), sample(10, 7.0, role="k", unit="head.0")]
    store.record_measurement(attempt.id, measured(10), samples)
    store.record_measurement(attempt.id, measured(20), [sample(20, 5.0, unit="head.1")])
    return store


@pytest.mark.parametrize(("statistic", "value"), [("min", 1.0), ("mean", 3.0), ("max", 6.0), ("median", 2.0)])
def test_a_cell_is_the_statistic_of_the_finite_values_of_its_units(heads, run, statistic, value):
    heatmap = heads.heatmap(run.id, RANK, role="q", lag=1, statistic=statistic, unit_kind="head")
    assert heatmap == Heatmap((0, 3), (10, 20), ((value, 5.0), (None, None)), 1)


@pytest.mark.parametrize(("unit_kind", "value"), [("whole", -50.0), ("expert", 100.0), ("any", 2.0)])
def test_the_kind_of_unit_decides_what_is_taken_together(heads, run, unit_kind, value):
    heatmap = heads.heatmap(run.id, RANK, role="q", lag=1, unit_kind=unit_kind)
    assert heatmap.values[0][0] == value


def test_an_even_number_of_values_has_its_median_between_them(heads, run, attempt, measured, sample):
    heads.record_measurement(attempt.id, measured(20), [sample(20, 8.0, unit="head.2")])
    assert heads.heatmap(run.id, RANK, role="q", lag=1).values[0][1] == 6.5


@pytest.mark.parametrize("statistic", ["min", "mean", "max", "median"])
@pytest.mark.parametrize("extreme", [1.7e308, 5e-324])
def test_extreme_values_neither_overflow_nor_fail(store, record, sample, statistic, extreme):
    record(1, [sample(1, extreme, unit=f"head.{head}") for head in range(4)])
    ((value,),) = store.heatmap(store.run("llama").id, RANK, role="q", lag=1, statistic=statistic).values
    assert value == pytest.approx(extreme, abs=2e-323)


def test_a_heatmap_of_nothing_is_empty(store, run, attempt):
    assert store.heatmap(run.id, RANK, role="q", lag=1) == Heatmap((), (), (), 1)
    assert store.heatmap(run.id, RANK, role="q", lag=1, attempt=9) == Heatmap((), (), (), 9)
    assert store.heatmap(run.id + 1, RANK, role="q", lag=1) == Heatmap((), (), (), 0)


def test_facets_are_the_choices_there_are(heads, run, attempt, measured, sample):
    loss = sample(10, 1.0, metric="training.loss", role="training", layer=None, lag=0)
    heads.record_measurement(attempt.id, measured(10), [loss])
    second = heads.open_attempt(run.id, 10, "again")
    heads.record_measurement(second.id, measured(10), [sample(10, 1.0, role="k", layer=1)])
    assert heads.facets(run.id) == (
        Facet("training.loss", "training", 0, True, False, False, series=1, layers=0),
        Facet(RANK, "k", 1, True, True, False, series=2, layers=2),
        Facet(RANK, "q", 1, True, True, True, series=8, layers=2),
    )
    assert heads.facets(run.id + 1) == ()

"""What goes in as samples comes out as series."""

from __future__ import annotations

import pytest

from foreshock.storage.records import Sample, SeriesKey

RANK = "update.effective_rank"


@pytest.fixture
def three_steps(store, attempt, measured, sample):
    """Steps 10, 20 and 30 of two layers, whole and two heads, lag 1; and a lag 4 from step 20 on."""
    for step in (10, 20, 30):
        samples = [
            sample(step, float(step + layer), layer=layer, unit=unit, base_step=step - 10)
            for layer in (0, 1)
            for unit in ("", "head.0", "head.1")
        ]
        if step > 10:
            samples.append(sample(step, 0.5, lag=4, base_step=step - 40))
        samples.append(sample(step, 2.5, metric="training.loss", layer=None, role="training", lag=0))
        store.record_measurement(attempt.id, measured(step), samples)
    return store


def keys(series):
    return [(each.key.layer, each.key.unit, each.key.lag) for each in series]


def test_measuring_the_same_again_changes_nothing(three_steps, run, attempt, measured, sample):
    before = three_steps.series(run.id, RANK), three_steps.checkpoints(run.id)
    three_steps.record_measurement(attempt.id, measured(20), [sample(20, -1.0), sample(20, -2.0)])
    assert (three_steps.series(run.id, RANK), three_steps.checkpoints(run.id)) == before


def test_series_come_in_the_order_of_their_keys(store, run, attempt, measured):
    wanted = [
        SeriesKey("m", layer, role, parameter, unit, lag)
        for layer in (None, 0, 2, 10)
        for role in ("K", "k", "ß")
        for parameter in ("B.weight", "a.weight", "a_weight")
        for unit in ("", "head.0", "head.10", "head.2")
        for lag in (1, 4)
    ]
    shuffled = sorted(wanted, key=lambda key: hash((key.layer, key.role, key.parameter, key.unit, key.lag)))
    store.record_measurement(attempt.id, measured(1), [Sample(key, 1, 1.0) for key in shuffled])
    assert [each.key for each in store.series(run.id, "m")] == wanted
    assert [key for key, _ in store.latest(run.id)] == wanted
    assert [each.key for each in store.series(run.id, "m", limit_series=5)] == wanted[:5]


@pytest.mark.parametrize(
    ("choice", "found"),
    [
        ({"layer": 1, "unit": ""}, [(1, "", 1)]),
        ({"unit": "", "lag": 1}, [(0, "", 1), (1, "", 1)]),
        ({"unit": "*", "layer": 0, "lag": 1}, [(0, "", 1), (0, "head.0", 1), (0, "head.1", 1)]),
        ({"lag": 4}, [(0, "", 4)]),
        ({"role": "k"}, []),
        ({"parameter": "q_proj.weight", "unit": "head.1"}, [(0, "head.1", 1), (1, "head.1", 1)]),
        ({"layer": 10**30}, []),
        ({"lag": -(10**30)}, []),
        ({"attempt": 2}, []),
    ],
)
def test_filters_choose_series(three_steps, run, choice, found):
    assert keys(three_steps.series(run.id, RANK, **choice)) == found


@pytest.mark.parametrize(
    ("stretch", "steps"),
    [
        ({}, (10, 20, 30)),
        ({"from_step": 20}, (20, 30)),
        ({"to_step": 20}, (10, 20)),
        ({"from_step": 11, "to_step": 29}, (20,)),
        ({"from_step": 31}, ()),
        ({"from_step": -(10**30), "to_step": 10**30}, (10, 20, 30)),
    ],
)
def test_a_stretch_includes_both_ends(three_steps, run, stretch, steps):
    (series,) = three_steps.series(run.id, RANK, layer=1, unit="", **stretch)
    assert series.steps == steps
    assert series.values == tuple(step + 1.0 for step in steps)
    assert series.base_steps == tuple(step - 10 for step in steps)
    assert series.reasons == ("",) * len(steps)
    assert (series.attempt, series.source_points) == (1, len(steps))


def test_a_series_outside_of_the_blocks_has_no_layer(three_steps, run):
    (loss,) = three_steps.series(run.id, "training.loss")
    assert loss.key == SeriesKey("training.loss", None, "training", "q_proj.weight", "", 0)
    assert loss.base_steps == (None, None, None)


def test_attempts_are_kept_apart_and_the_latest_is_meant(three_steps, run, measured, sample):
    second = three_steps.open_attempt(run.id, 20, "step 20 after step 30")
    three_steps.record_measurement(second.id, measured(20), [sample(20, -1.0)])
    (latest,) = three_steps.series(run.id, RANK)
    assert (latest.attempt, latest.steps, latest.values) == (2, (20,), (-1.0,))
    (first, *_) = three_steps.series(run.id, RANK, attempt=1)
    assert (first.attempt, first.steps) == (1, (10, 20, 30))
    assert [sample.value for _, sample in three_steps.latest(run.id)] == [-1.0]


@pytest.mark.parametrize(
    ("before_step", "limit", "steps"),
    [
        (30, 2, (10, 20)),
        (30, 1, (20,)),
        (20, 64, (10,)),
        (10, 64, ()),
        (None, 2, (20, 30)),
        (None, 3, (10, 20, 30)),
        (10**30, 1, (30,)),
    ],
)
def test_history_is_the_last_few_below_a_step(three_steps, attempt, before_step, limit, steps):
    past = three_steps.history(attempt.id, RANK, role="q", lag=1, before_step=before_step, limit=limit)
    units = ("", "head.0", "head.1")
    assert keys(past) == [(layer, unit, 1) for layer in (0, 1) for unit in units]
    assert {each.steps for each in past} == {steps}
    assert [each.values for each in past] == [
        tuple(float(step + layer) for step in steps) for layer in (0, 1) for _ in units
    ]
    assert {each.attempt for each in past} == {1}


def test_history_counts_each_series_own_samples(three_steps, attempt, measured, sample):
    three_steps.record_measurement(attempt.id, measured(40), [sample(40, 1.0)])
    past = three_steps.history(attempt.id, RANK, role="q", lag=1, before_step=None, limit=2)
    assert [each.steps for each in past] == [(30, 40)] + [(20, 30)] * 5


def test_latest_is_the_newest_sample_of_each_series(three_steps, run, attempt, measured, sample):
    three_steps.record_measurement(attempt.id, measured(40), [sample(40, None, reason="frozen_parameter")])
    latest = three_steps.latest(run.id)
    assert len(latest) == 8
    assert all(key == each.key for key, each in latest)
    newest = {(key.layer, key.unit, key.lag): each for key, each in latest}
    frozen = newest[0, "", 1]
    assert (frozen.step, frozen.value, frozen.kind, frozen.reason) == (
        40,
        None,
        "undefined",
        "frozen_parameter",
    )
    assert (newest[1, "head.1", 1].step, newest[1, "head.1", 1].base_step) == (30, 20)


def test_a_run_without_attempts_has_no_series(store, run):
    assert store.series(run.id, RANK) == ()
    assert store.latest(run.id) == ()
    assert store.series(10**30 % 2**62, RANK) == ()
    assert store.history(1, RANK, role="q", lag=1, before_step=None, limit=1) == ()

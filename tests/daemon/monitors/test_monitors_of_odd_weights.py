"""Every monitor over the weights that crash other loggers: it answers, or gives null with a reason."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from foreshock.daemon.monitors import CATALOGUE, MONITORS
from foreshock.daemon.monitors.base import LayerChange, LayerState, Monitor, Reading
from foreshock.daemon.roles.base import Heads, Role

SHAPES = {
    Role.Q: (12, 16),
    Role.K: (6, 16),
    Role.V: (6, 16),
    Role.O: (16, 12),
    Role.ROUTER: (5, 16),
    Role.ROUTER_BIAS: (5,),
    Role.ROUTER_NORM: (16,),
}
FILLS: dict[str, float] = {
    "NaN": math.nan,
    "Inf": math.inf,
    "−Inf": -math.inf,
    "zero": 0.0,
    "constant": 0.25,
    "huge": 1e38,
    "subnormal": 1e-45,
}


def every_reading(change: LayerChange) -> list[Reading]:
    return [
        reading
        for monitor in MONITORS
        for reading in (*monitor.of_state(change.after), *monitor.of_change(change))
    ]


def assert_sound(readings: list[Reading]) -> None:
    metrics = {metric.name: metric for metric in CATALOGUE}
    assert readings
    for reading in readings:
        metric = metrics[reading.metric]
        if reading.value is None:
            assert reading.reason, reading
        else:
            assert math.isfinite(reading.value), reading
            assert metric.low is None or reading.value >= metric.low, reading
            assert metric.high is None or reading.value <= metric.high, reading


@pytest.mark.parametrize("after", FILLS.values(), ids=FILLS.keys())
@pytest.mark.parametrize("before", FILLS.values(), ids=FILLS.keys())
def test_uniform_weights_give_values_in_range_or_reasons(
    state: Callable[..., LayerState], heads: Heads, before: float, after: float
) -> None:
    earlier, base, now = (
        state({role: torch.full(shape, fill) for role, shape in SHAPES.items()}, heads)
        for fill in (0.5, before, after)
    )
    assert_sound(every_reading(LayerChange(base, now, 1, earlier)))


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1)])
def test_the_smallest_matrices_are_measured(
    state: Callable[..., LayerState], gaussian: Callable[..., Tensor], shape: tuple[int, int]
) -> None:
    roles = (Role.Q, Role.K, Role.V, Role.ROUTER)
    layers = [
        state({role: gaussian(*shape) for role in roles}, Heads(shape[0], shape[0], 1)) for _ in range(3)
    ]
    readings = every_reading(LayerChange(layers[1], layers[2], 1, layers[0]))
    assert_sound(readings)
    ranks = [r.value for r in readings if r.metric == "update.effective_rank"]
    assert ranks == [pytest.approx(1)] * len(ranks)


@pytest.mark.parametrize("shape", [(), (0,), (7,), (0, 16), (12, 0), (2, 3, 4)])
def test_all_that_is_said_of_no_matrix_is_its_nonfinite_count(
    state: Callable[..., LayerState], heads: Heads, shape: tuple[int, ...]
) -> None:
    layer = state({role: torch.ones(shape) for role in (Role.Q, Role.K, Role.O, Role.ROUTER)}, heads)
    readings = every_reading(LayerChange(layer, layer, 1, layer))
    assert {reading.metric for reading in readings} == {"weight.nonfinite"}


@pytest.mark.parametrize("monitor", MONITORS, ids=lambda monitor: type(monitor).__name__)
def test_a_layer_without_any_tensor_says_nothing(state: Callable[..., LayerState], monitor: Monitor) -> None:
    nothing = state({})
    assert list(monitor.of_state(nothing)) == []
    assert list(monitor.of_change(LayerChange(nothing, nothing, 1, nothing))) == []

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
import torch
from torch import Tensor

from foreshock.daemon.monitors import CATALOGUE, MONITORS
from foreshock.daemon.monitors.base import LayerChange, LayerState, Reading
from foreshock.daemon.roles.base import Heads, Role


@pytest.fixture
def readings(
    state: Callable[..., LayerState],
    attention: Callable[[], dict[Role, Tensor]],
    heads: Heads,
    gaussian: Callable[..., Tensor],
) -> Iterable[tuple[frozenset[str], Reading]]:
    """All that is said of a complete layer, with the names that its monitor lists."""
    vectors = ((Role.ROUTER_BIAS, 5), (Role.ROUTER_NORM, 16))
    earlier, before, after = (
        state(attention() | {role: gaussian(size) for role, size in vectors}, heads) for _ in range(3)
    )
    change = LayerChange(before, after, 1, earlier)
    return [
        (frozenset(metric.name for metric in monitor.metrics), reading)
        for monitor in MONITORS
        for reading in (*monitor.of_state(after), *monitor.of_change(change))
    ]


def test_every_metric_is_listed_once() -> None:
    names = [metric.name for metric in CATALOGUE]
    assert len(names) == len(set(names))


def test_every_reading_is_of_a_metric_that_its_monitor_lists(
    readings: list[tuple[frozenset[str], Reading]],
) -> None:
    assert all(reading.metric in listed for listed, reading in readings)


def test_a_complete_layer_gives_every_metric_of_the_catalogue(
    readings: list[tuple[frozenset[str], Reading]],
) -> None:
    assert {reading.metric for _, reading in readings} == {metric.name for metric in CATALOGUE}


def test_every_value_lies_in_the_range_of_its_metric(
    readings: list[tuple[frozenset[str], Reading]],
) -> None:
    metrics = {metric.name: metric for metric in CATALOGUE}
    for _, reading in readings:
        metric = metrics[reading.metric]
        assert reading.value is not None
        assert metric.low is None or reading.value >= metric.low
        assert metric.high is None or reading.value <= metric.high


def test_no_two_readings_belong_to_one_series(readings: list[tuple[frozenset[str], Reading]]) -> None:
    keys = [(reading.metric, reading.role, reading.parameter, reading.unit) for _, reading in readings]
    assert len(keys) == len(set(keys))


def test_metrics_are_explained_in_sentences() -> None:
    for metric in CATALOGUE:
        assert metric.description.endswith(".")
        assert metric.unit in {"1", "nats", "elements"}
        family, _, quantity = metric.name.partition(".")
        assert family.isidentifier()
        assert quantity.isidentifier()


def test_monitors_leave_the_weights_as_they_are(
    state: Callable[..., LayerState], attention: Callable[[], dict[Role, Tensor]], heads: Heads
) -> None:
    before, after = ({role: tensor.double() for role, tensor in attention().items()} for _ in range(2))
    copies = [{role: tensor.clone() for role, tensor in tensors.items()} for tensors in (before, after)]
    change = LayerChange(state(before, heads), state(after, heads), 1, state(after, heads))
    for monitor in MONITORS:
        list(monitor.of_state(change.after))
        list(monitor.of_change(change))
    for tensors, copy in zip((before, after), copies, strict=True):
        assert all(torch.equal(tensors[role], copy[role]) for role in tensors)

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from foreshock.daemon.linalg import rounding_noise
from foreshock.daemon.monitors.base import LayerChange, LayerState, Reading
from foreshock.daemon.monitors.updates import Persistence, UpdateSize
from foreshock.daemon.roles.base import ATTENTION, Heads, Role

MakeState = Callable[..., LayerState]
Weights = Callable[[], dict[Role, Tensor]]
ByKey = Callable[..., dict[tuple[str, str, str], Reading]]
Gaussian = Callable[..., Tensor]


def test_the_relative_norm_is_that_of_the_update_over_the_base(
    state: MakeState, attention: Weights, by_key: ByKey
) -> None:
    before, after = attention(), attention()
    found = by_key(UpdateSize().of_change(LayerChange(state(before), state(after), 1)))
    assert {role for _, role, _ in found} == {*ATTENTION, Role.ROUTER}
    for role in (*ATTENTION, Role.ROUTER):
        expected = (
            (after[role].double() - before[role].double()).norm() / before[role].double().norm()
        ).item()
        assert found["update.relative_norm", role, ""].value == pytest.approx(expected, rel=1e-12)


def test_the_resolution_is_one_for_nothing_but_rounding(
    state: MakeState, gaussian: Gaussian, by_key: ByKey
) -> None:
    weight, invisible = gaussian(256, 256), 3e-3 * gaussian(256, 256)  # far below the spacing of bf16
    before, after = weight.bfloat16(), (weight + invisible).bfloat16()
    reading = by_key(UpdateSize().of_change(LayerChange(state({Role.Q: before}), state({Role.Q: after}), 1)))[
        "update.resolution", Role.Q, ""
    ]
    noise = rounding_noise("bfloat16") * before.double().norm().item()
    assert reading.value == pytest.approx((after.double() - before.double()).norm().item() / noise, rel=1e-3)
    assert reading.value is not None
    assert 0.5 < reading.value < 4
    assert reading.reason == "below_resolution"


def test_the_resolution_is_relative_to_the_stored_dtype(
    state: MakeState, gaussian: Gaussian, by_key: ByKey
) -> None:
    weight, update = gaussian(64, 64).half(), 0.05 * gaussian(64, 64)
    before, after = state({Role.O: weight}), state({Role.O: (weight.float() + update).half()})
    value = by_key(UpdateSize().of_change(LayerChange(before, after, 1)))[
        "update.resolution", Role.O, ""
    ].value
    assert value == pytest.approx(0.05 / rounding_noise("float16"), rel=0.05)


def test_a_zero_update_has_relative_norm_zero_and_no_resolution(
    state: MakeState, attention: Weights, by_key: ByKey
) -> None:
    one = state(attention())
    found = by_key(UpdateSize().of_change(LayerChange(one, one, 1)))
    for (metric, _, _), reading in found.items():
        expected = (0.0, "") if metric == "update.relative_norm" else (None, "zero_update")
        assert (reading.value, reading.reason) == expected


def test_a_weight_that_was_zero_has_no_relative_norm(
    state: MakeState, gaussian: Gaussian, by_key: ByKey
) -> None:
    change = LayerChange(state({Role.O: torch.zeros(4, 4)}), state({Role.O: gaussian(4, 4)}), 1)
    found = by_key(UpdateSize().of_change(change))
    relative, resolution = (found[f"update.{name}", Role.O, ""] for name in ("relative_norm", "resolution"))
    assert (relative.value, relative.reason) == (None, "zero_weight")
    assert resolution.value is not None
    assert resolution.value > 1e6


@pytest.mark.parametrize("side", [0, 1])
def test_nonfinite_weights_have_no_size(
    state: MakeState, attention: Weights, by_key: ByKey, side: int
) -> None:
    weights = [attention(), attention()]
    weights[side][Role.Q][0, 0] = math.nan
    found = by_key(UpdateSize().of_change(LayerChange(state(weights[0]), state(weights[1]), 1)))
    for metric in ("update.relative_norm", "update.resolution"):
        assert (found[metric, Role.Q, ""].value, found[metric, Role.Q, ""].reason) == (None, "nonfinite")
        assert found[metric, Role.K, ""].value is not None


def history(
    state: MakeState, weight: Tensor, *updates: Tensor, dtype: torch.dtype = torch.float64
) -> LayerChange:
    """Three checkpoints of q that the two updates lead through."""
    weights = (weight, weight + updates[0], weight + updates[0] + updates[1])
    earlier, before, after = (state({Role.Q: each.to(dtype)}) for each in weights)
    return LayerChange(before, after, 1, earlier)


def test_persistence_is_the_cosine_of_consecutive_updates(
    state: MakeState, gaussian: Gaussian, by_key: ByKey
) -> None:
    weight, first, noise = gaussian(12, 16).double(), gaussian(12, 16).double(), gaussian(12, 16).double()
    second = 0.6 * first + 0.8 * noise
    found = by_key(Persistence().of_change(history(state, weight, first, second)))
    expected = torch.cosine_similarity(first.flatten(), second.flatten(), 0).item()
    assert found["update.persistence", Role.Q, ""].value == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(("factor", "expected"), [(2.0, 1.0), (-0.5, -1.0)])
def test_updates_along_one_direction_persist_or_turn_back(
    state: MakeState, gaussian: Gaussian, by_key: ByKey, factor: float, expected: float
) -> None:
    update = gaussian(12, 16).double()
    found = by_key(
        Persistence().of_change(history(state, gaussian(12, 16).double(), update, factor * update))
    )
    assert found["update.persistence", Role.Q, ""].value == pytest.approx(expected, abs=1e-12)


def test_persistence_is_also_told_per_head_of_queries_and_keys(
    state: MakeState, attention: Weights, heads: Heads, by_key: ByKey
) -> None:
    weights = [attention() for _ in range(3)]
    weights[2][Role.Q][3:6] = 2 * weights[1][Role.Q][3:6] - weights[0][Role.Q][3:6]
    earlier, before, after = (state(each, heads) for each in weights)
    found = by_key(Persistence().of_change(LayerChange(before, after, 1, earlier)))
    assert {(role, unit) for _, role, unit in found if unit} == {
        *((Role.Q, f"head.{head}") for head in range(4)),
        *((Role.K, f"head.{head}") for head in range(2)),
    }
    assert found["update.persistence", Role.Q, "head.1"].value == pytest.approx(1, abs=1e-6)
    assert found["update.persistence", Role.Q, "head.0"].value != pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("still", [0, 1])
def test_a_zero_update_has_no_direction_to_keep(
    state: MakeState, gaussian: Gaussian, by_key: ByKey, still: int
) -> None:
    updates = [gaussian(4, 4), gaussian(4, 4)]
    updates[still].zero_()
    (reading,) = by_key(Persistence().of_change(history(state, gaussian(4, 4), *updates))).values()
    assert (reading.value, reading.reason) == (None, "zero_update")


def test_the_second_checkpoint_has_no_persistence_yet(
    state: MakeState, attention: Weights, heads: Heads, by_key: ByKey
) -> None:
    change = LayerChange(state(attention(), heads), state(attention(), heads), 1)
    found = by_key(Persistence().of_change(change))
    assert {unit for _, _, unit in found} == {""}
    assert {(reading.value, reading.reason) for reading in found.values()} == {(None, "no_earlier_base")}


@pytest.mark.parametrize(
    ("earlier", "reason"),
    [
        (torch.full((4, 4), math.nan), "nonfinite"),
        (torch.zeros(5, 4), "shape_changed"),
        (None, "not_in_base"),
    ],
)
def test_an_unusable_earlier_base_undefines_persistence(
    state: MakeState, gaussian: Gaussian, by_key: ByKey, earlier: Tensor | None, reason: str
) -> None:
    first = state({} if earlier is None else {Role.Q: earlier})
    before, after = state({Role.Q: gaussian(4, 4)}), state({Role.Q: gaussian(4, 4)})
    (reading,) = by_key(Persistence().of_change(LayerChange(before, after, 1, first))).values()
    assert (reading.value, reading.reason) == (None, reason)


@pytest.mark.parametrize("noisy", [0, 1])
def test_rounding_noise_of_either_update_flags_persistence(
    state: MakeState, gaussian: Gaussian, by_key: ByKey, noisy: int
) -> None:
    updates = [gaussian(32, 32), gaussian(32, 32)]
    updates[noisy] *= 2e-3
    change = history(state, gaussian(32, 32), *updates, dtype=torch.bfloat16)
    (reading,) = by_key(Persistence().of_change(change)).values()
    assert reading.reason == "below_resolution"
    assert reading.value is not None

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from foreshock.daemon.monitors.base import LayerChange, LayerState, Reading
from foreshock.daemon.monitors.family import QUANTITIES
from foreshock.daemon.monitors.spectra import UpdateSpectra, WeightSpectra
from foreshock.daemon.roles.base import ATTENTION, Heads, Role

MakeState = Callable[..., LayerState]
Weights = Callable[[], dict[Role, Tensor]]
ByKey = Callable[..., dict[tuple[str, str, str], Reading]]


def effective_rank(matrix: Tensor) -> float:
    shares = torch.linalg.svdvals(matrix.double()).square()
    return math.exp(torch.special.entr(shares / shares.sum()).sum().item())


def test_the_spectrum_of_an_update_is_that_of_the_difference(
    state: MakeState, attention: Weights, by_key: ByKey
) -> None:
    before, after = attention(), attention()
    found = by_key(UpdateSpectra().of_change(LayerChange(state(before), state(after), 1)))
    for role in (*ATTENTION, Role.ROUTER):
        delta = after[role].double() - before[role].double()
        sigma = torch.linalg.svdvals(delta)
        energy = sigma.square().sum().item()
        expected = {
            "frobenius_norm": math.sqrt(energy),
            "spectral_norm": sigma[0].item(),
            "stable_rank": energy / sigma[0].item() ** 2,
            "spectral_entropy": math.log(effective_rank(delta)),
            "effective_rank": effective_rank(delta),
            "top_energy": sigma[0].item() ** 2 / energy,
        }
        for quantity in QUANTITIES:
            reading = found[f"update.{quantity}", role, ""]
            assert reading.value == pytest.approx(expected[quantity], rel=1e-10)
            assert (reading.parameter, reading.reason) == (f"{role}.weight", "")


def test_the_heads_of_queries_keys_and_values_are_rows_and_those_of_outputs_columns(
    state: MakeState, attention: Weights, heads: Heads, by_key: ByKey
) -> None:
    before, after = attention(), attention()
    found = by_key(UpdateSpectra().of_change(LayerChange(state(before, heads), state(after, heads), 1)))
    parts = {
        (Role.Q, "head.3"): (slice(9, 12), slice(None)),
        (Role.K, "head.1"): (slice(3, 6), slice(None)),
        (Role.V, "head.0"): (slice(0, 3), slice(None)),
        (Role.O, "head.3"): (slice(None), slice(9, 12)),
    }
    for (role, unit), part in parts.items():
        expected = effective_rank((after[role].double() - before[role].double())[part])
        assert found["update.effective_rank", role, unit].value == pytest.approx(expected, rel=1e-10)
    assert sum(metric == "update.top_energy" and unit != "" for metric, _, unit in found) == 4 + 2 + 2 + 4


def test_without_heads_only_whole_matrices_are_measured(
    state: MakeState, attention: Weights, by_key: ByKey
) -> None:
    change = LayerChange(state(attention()), state(attention()), 1)
    assert {unit for _, _, unit in by_key(UpdateSpectra().of_change(change))} == {""}
    assert {unit for _, _, unit in by_key(WeightSpectra().of_state(change.after))} == {""}


def test_weights_are_measured_whole_and_queries_and_keys_per_head(
    state: MakeState, attention: Weights, heads: Heads, by_key: ByKey
) -> None:
    weights = attention()
    found = by_key(WeightSpectra().of_state(state(weights, heads)))
    assert {role for _, role, unit in found if unit} == {Role.Q, Role.K}
    assert {role for _, role, unit in found if not unit} == {*ATTENTION, Role.ROUTER}
    expected = effective_rank(weights[Role.K][3:6])
    assert found["weight.effective_rank", Role.K, "head.1"].value == pytest.approx(expected, rel=1e-10)


def test_a_zero_update_has_norms_but_no_effective_rank(
    state: MakeState, attention: Weights, heads: Heads, by_key: ByKey
) -> None:
    weights = attention()
    found = by_key(UpdateSpectra().of_change(LayerChange(state(weights, heads), state(weights, heads), 1)))
    for (metric, _, _), reading in found.items():
        if metric in {"update.frobenius_norm", "update.spectral_norm"}:
            assert (reading.value, reading.reason) == (0.0, "")
        else:
            assert (reading.value, reading.reason) == (None, "zero_update")


def test_a_head_that_stands_still_does_not_silence_the_others(
    state: MakeState, attention: Weights, heads: Heads, by_key: ByKey
) -> None:
    before, after = attention(), attention()
    after[Role.Q][3:6] = before[Role.Q][3:6]
    found = by_key(UpdateSpectra().of_change(LayerChange(state(before, heads), state(after, heads), 1)))
    ranks = [found["update.effective_rank", Role.Q, f"head.{head}"] for head in range(4)]
    assert [reading.reason for reading in ranks] == ["", "zero_update", "", ""]
    assert [reading.value is None for reading in ranks] == [False, True, False, False]


def test_a_zero_weight_is_told_apart_from_a_zero_update(state: MakeState, by_key: ByKey) -> None:
    found = by_key(WeightSpectra().of_state(state({Role.ROUTER: torch.zeros(4, 8)})))
    assert found["weight.frobenius_norm", Role.ROUTER, ""].value == 0
    assert found["weight.effective_rank", Role.ROUTER, ""].reason == "zero_matrix"


@pytest.mark.parametrize("side", [0, 1])
def test_a_nonfinite_side_undefines_the_whole_update_and_its_heads_are_left_out(
    state: MakeState, attention: Weights, heads: Heads, by_key: ByKey, side: int
) -> None:
    weights = [{Role.Q: attention()[Role.Q]}, {Role.Q: attention()[Role.Q]}]
    weights[side][Role.Q][0, 0] = math.inf
    before, after = (state(each, heads) for each in weights)
    found = by_key(UpdateSpectra().of_change(LayerChange(before, after, 1)))
    assert set(found) == {(f"update.{quantity}", Role.Q, "") for quantity in QUANTITIES}
    assert {(reading.value, reading.reason) for reading in found.values()} == {(None, "nonfinite")}


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_nonfinite_weights_are_never_decomposed(
    state: MakeState, attention: Weights, heads: Heads, monkeypatch: pytest.MonkeyPatch, poison: float
) -> None:
    weights = {Role.Q: attention()[Role.Q]}
    weights[Role.Q][0, 0] = poison
    monkeypatch.delattr(torch.linalg, "eigvalsh")
    readings = list(WeightSpectra().of_state(state(weights, heads)))
    assert [reading.metric for reading in readings] == [f"weight.{quantity}" for quantity in QUANTITIES]
    assert {(reading.value, reading.reason) for reading in readings} == {(None, "nonfinite")}


def test_a_changed_shape_is_said_and_not_guessed_at(
    state: MakeState, gaussian: Callable[..., Tensor], by_key: ByKey
) -> None:
    before, after = state({Role.ROUTER: gaussian(4, 8)}), state({Role.ROUTER: gaussian(5, 8)})
    found = by_key(UpdateSpectra().of_change(LayerChange(before, after, 1)))
    assert {(reading.value, reading.reason) for reading in found.values()} == {(None, "shape_changed")}


def test_a_role_that_the_base_lacks_is_said(
    state: MakeState, gaussian: Callable[..., Tensor], by_key: ByKey
) -> None:
    found = by_key(UpdateSpectra().of_change(LayerChange(state({}), state({Role.Q: gaussian(4, 8)}), 1)))
    assert {(reading.value, reading.reason) for reading in found.values()} == {(None, "not_in_base")}


@pytest.mark.parametrize("shape", [(), (7,), (2, 3, 4), (0, 5)])
def test_only_matrices_with_elements_have_spectra(state: MakeState, shape: tuple[int, ...]) -> None:
    odd = state({Role.Q: torch.ones(shape)})
    assert list(UpdateSpectra().of_change(LayerChange(odd, odd, 1))) == []
    assert list(WeightSpectra().of_state(odd)) == []


def test_an_update_that_drowns_in_rounding_keeps_its_values_and_is_flagged(
    state: MakeState, gaussian: Callable[..., Tensor], heads: Heads, by_key: ByKey
) -> None:
    weight, update = gaussian(12, 16), 1e-3 * gaussian(12, 16)
    before, after = ({Role.Q: w.bfloat16()} for w in (weight, weight + update))
    found = by_key(UpdateSpectra().of_change(LayerChange(state(before, heads), state(after, heads), 1)))
    assert {reading.reason for reading in found.values()} == {"below_resolution"}
    assert all(reading.value is not None for reading in found.values())


def test_the_same_update_in_float32_is_trusted(
    state: MakeState, gaussian: Callable[..., Tensor], by_key: ByKey
) -> None:
    weight, update = gaussian(12, 16), 1e-3 * gaussian(12, 16)
    change = LayerChange(state({Role.Q: weight}), state({Role.Q: weight + update}), 1)
    assert {reading.reason for reading in by_key(UpdateSpectra().of_change(change)).values()} == {""}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2])
def test_narrow_dtypes_are_converted_before_they_are_subtracted(
    state: MakeState, gaussian: Callable[..., Tensor], by_key: ByKey, dtype: torch.dtype
) -> None:
    before, after = gaussian(6, 9).to(dtype), gaussian(6, 9).to(dtype)
    change = LayerChange(state({Role.V: before}), state({Role.V: after}), 1)
    found = by_key(UpdateSpectra().of_change(change))["update.effective_rank", Role.V, ""]
    assert found.value == pytest.approx(effective_rank(after.double() - before.double()), rel=1e-10)

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from foreshock.daemon.linalg import isotropic_entropy
from foreshock.daemon.monitors.base import LayerChange, LayerState, Reading
from foreshock.daemon.monitors.router import RouterBias, RouterConditioning
from foreshock.daemon.roles.base import Role, RouterTraits

MakeState = Callable[..., LayerState]
ByKey = Callable[..., dict[tuple[str, str, str], Reading]]
Gaussian = Callable[..., Tensor]


def quantities(layer: LayerState) -> dict[str, tuple[float | None, str]]:
    return {
        reading.metric.removeprefix("router."): (reading.value, reading.reason)
        for reading in RouterConditioning().of_state(layer)
    }


def test_orthogonal_experts_of_equal_norm_are_the_textbook_case(state: MakeState) -> None:
    found = quantities(state({Role.ROUTER: 2 * torch.eye(4, 8)}))
    expected = {
        "conditioning": math.sqrt(3),
        "similarity": 0.0,
        "similarity_max": 0.0,
        "row_norm_min": 2.0,
        "row_norm_mean": 2.0,
        "row_norm_max": 2.0,
        "row_norm_ratio": 1.0,
    }
    for name, value in expected.items():
        assert found[name] == (pytest.approx(value, abs=1e-14), "")


def test_row_norms_tell_a_winner(state: MakeState) -> None:
    rows = torch.eye(4)
    rows[2] *= 5
    found = quantities(state({Role.ROUTER: rows}))
    assert [found[f"row_norm_{name}"][0] for name in ("min", "mean", "max", "ratio")] == [1.0, 2.0, 5.0, 2.5]


def test_entropy_is_also_given_as_a_share_of_its_largest_value(state: MakeState, gaussian: Gaussian) -> None:
    rows = gaussian(8, 16)
    found = quantities(state({Role.ROUTER: rows}))
    entropy = isotropic_entropy(rows.double())
    assert found["entropy_isotropic"] == (pytest.approx(entropy), "")
    assert found["entropy_isotropic_ratio"] == (pytest.approx(entropy / math.log(8)), "")


@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_the_gain_of_the_norm_before_the_router_counts(
    state: MakeState, gaussian: Gaussian, offset: float
) -> None:
    rows, gain = gaussian(8, 16), gaussian(16)
    layer = state({Role.ROUTER: rows, Role.ROUTER_NORM: gain}, router=RouterTraits(norm_offset=offset))
    expected = isotropic_entropy(rows.double() * (gain.double() + offset))
    assert quantities(layer)["entropy_isotropic"][0] == pytest.approx(expected)


def test_sigmoid_routers_are_scored_as_such(state: MakeState, gaussian: Gaussian) -> None:
    rows = gaussian(8, 16)
    found = quantities(state({Role.ROUTER: rows}, router=RouterTraits(scoring="sigmoid")))
    assert found["entropy_isotropic"][0] == pytest.approx(isotropic_entropy(rows.double(), "sigmoid"))


def test_a_nonfinite_gain_undefines_entropy_alone(state: MakeState, gaussian: Gaussian) -> None:
    gain = torch.ones(16)
    gain[3] = math.nan
    found = quantities(state({Role.ROUTER: gaussian(8, 16), Role.ROUTER_NORM: gain}))
    undefined = {name for name, (value, _) in found.items() if value is None}
    assert undefined == {"entropy_isotropic", "entropy_isotropic_ratio"}
    assert found["entropy_isotropic"] == (None, "nonfinite")


def test_a_nonfinite_router_undefines_everything(state: MakeState, gaussian: Gaussian) -> None:
    rows = gaussian(8, 16)
    rows[0, 0] = math.inf
    found = quantities(state({Role.ROUTER: rows}))
    assert len(found) == len(RouterConditioning.metrics)
    assert set(found.values()) == {(None, "nonfinite")}


def test_a_zero_router_says_what_can_be_said(state: MakeState) -> None:
    found = quantities(state({Role.ROUTER: torch.zeros(4, 8)}))
    assert found["conditioning"] == (None, "zero_mean")
    assert found["similarity"] == found["similarity_max"] == (None, "zero_row")
    assert found["row_norm_ratio"] == (None, "zero_matrix")
    assert found["row_norm_max"] == (0.0, "")
    assert found["entropy_isotropic_ratio"] == (pytest.approx(1), "")


def test_a_single_expert_is_like_no_other(state: MakeState) -> None:
    found = quantities(state({Role.ROUTER: torch.ones(1, 8)}))
    assert found["similarity"] == found["similarity_max"] == (None, "single_expert")
    assert found["entropy_isotropic"] == (0.0, "")
    assert found["entropy_isotropic_ratio"] == (None, "single_expert")
    assert found["conditioning"][0] == 0


@pytest.mark.parametrize("shape", [(32,), (2, 4, 8), (0, 8)])
def test_what_is_no_matrix_is_no_router(state: MakeState, shape: tuple[int, ...]) -> None:
    assert quantities(state({Role.ROUTER: torch.ones(shape)})) == {}


def test_a_dense_layer_has_no_router(state: MakeState, gaussian: Gaussian) -> None:
    dense = state({Role.Q: gaussian(4, 8)})
    assert quantities(dense) == {}
    assert list(RouterBias().of_state(dense)) == []
    assert list(RouterBias().of_change(LayerChange(dense, dense, 1))) == []


def test_the_bias_is_judged_by_its_spread_and_its_largest_move(state: MakeState, by_key: ByKey) -> None:
    before = state({Role.ROUTER_BIAS: torch.tensor([0.0, 0.5, -0.25])})
    after = state({Role.ROUTER_BIAS: torch.tensor([0.25, 0.5, -1.0])})
    spread = by_key(RouterBias().of_state(after))["router.bias_spread", Role.ROUTER_BIAS, ""]
    drift = by_key(RouterBias().of_change(LayerChange(before, after, 1)))[
        "router.bias_drift", Role.ROUTER_BIAS, ""
    ]
    assert (spread.value, spread.reason) == (1.5, "")
    assert (drift.value, drift.reason) == (0.75, "")


def test_a_bias_that_stands_still_has_drift_zero(state: MakeState) -> None:
    same = state({Role.ROUTER_BIAS: torch.ones(3)})
    (reading,) = RouterBias().of_change(LayerChange(same, same, 1))
    assert (reading.value, reading.reason) == (0.0, "")


@pytest.mark.parametrize(
    ("before", "reason"),
    [(torch.tensor([math.nan, 0.0]), "nonfinite"), (torch.zeros(3), "shape_changed")],
)
def test_a_bias_that_cannot_be_compared_has_no_drift(state: MakeState, before: Tensor, reason: str) -> None:
    change = LayerChange(state({Role.ROUTER_BIAS: before}), state({Role.ROUTER_BIAS: torch.zeros(2)}), 1)
    (reading,) = RouterBias().of_change(change)
    assert (reading.value, reading.reason) == (None, reason)


def test_a_nonfinite_bias_has_no_spread(state: MakeState) -> None:
    (reading,) = RouterBias().of_state(state({Role.ROUTER_BIAS: torch.tensor([math.inf, 0.0])}))
    assert (reading.value, reading.reason) == (None, "nonfinite")

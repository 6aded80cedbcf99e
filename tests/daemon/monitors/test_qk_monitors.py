from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from foreshock.daemon.monitors.base import LayerChange, LayerState, Reading
from foreshock.daemon.monitors.family import QUANTITIES
from foreshock.daemon.monitors.qk import LogitBound, QKIncrements
from foreshock.daemon.roles.base import Heads, Role

MakeState = Callable[..., LayerState]
Weights = Callable[[], dict[Role, Tensor]]
ByKey = Callable[..., dict[tuple[str, str, str], Reading]]

FAMILIES = ("qk_increment", "qk_first_order", "qk_second_order")


def of_head(weights: dict[Role, Tensor], head: int) -> tuple[Tensor, Tensor]:
    """W_q of a head of 3, and W_k of the key head that serves two of them."""
    q, k = weights[Role.Q].double(), weights[Role.K].double()
    return q[3 * head : 3 * head + 3], k[3 * (head // 2) : 3 * (head // 2) + 3]


def test_increments_of_every_head_are_those_of_the_dense_operators(
    state: MakeState, attention: Weights, heads: Heads, by_key: ByKey
) -> None:
    before, after = attention(), attention()
    found = by_key(QKIncrements().of_change(LayerChange(state(before, heads), state(after, heads), 1)))
    assert len(found) == 3 * 6 * 4
    for head in range(4):
        (q, k), (later_q, later_k) = of_head(before, head), of_head(after, head)
        dq, dk = later_q - q, later_k - k
        operators = (later_q.T @ later_k - q.T @ k, dq.T @ k + q.T @ dk, dq.T @ dk)
        for family, operator in zip(FAMILIES, operators, strict=True):
            sigma = torch.linalg.svdvals(operator)
            shares = sigma.square() / sigma.square().sum()
            rank = found[f"{family}.effective_rank", "qk", f"head.{head}"]
            norm = found[f"{family}.spectral_norm", "qk", f"head.{head}"]
            assert rank.value == pytest.approx(math.exp(torch.special.entr(shares).sum()), rel=1e-10)
            assert norm.value == pytest.approx(sigma[0].item(), rel=1e-10)
            assert rank.parameter == "q.weight + k.weight"


def test_the_logit_bound_is_the_operators_norm_over_the_root_of_the_head(
    state: MakeState, attention: Weights, heads: Heads, by_key: ByKey
) -> None:
    weights = attention()
    found = by_key(LogitBound().of_state(state(weights, heads)))
    assert len(found) == 4
    for head in range(4):
        q, k = of_head(weights, head)
        expected = torch.linalg.svdvals(q.T @ k)[0].item() / math.sqrt(3)
        reading = found["qk.logit_bound", "qk", f"head.{head}"]
        assert reading.value == pytest.approx(expected, rel=1e-10)
        assert reading.parameter == "q.weight + k.weight"


def test_no_logit_of_unit_inputs_exceeds_the_bound(
    state: MakeState, attention: Weights, heads: Heads, by_key: ByKey, gaussian: Callable[..., Tensor]
) -> None:
    weights = attention()
    bound = by_key(LogitBound().of_state(state(weights, heads)))["qk.logit_bound", "qk", "head.2"].value
    q, k = of_head(weights, 2)
    inputs = torch.nn.functional.normalize(gaussian(2, 500, 16).double(), dim=-1)
    logits = (inputs[0] @ q.T) @ (inputs[1] @ k.T).T / math.sqrt(3)
    assert bound is not None
    assert logits.abs().max().item() <= bound


@pytest.mark.parametrize("missing", [Role.Q, Role.K])
def test_one_of_queries_and_keys_alone_says_nothing(
    state: MakeState, attention: Weights, heads: Heads, missing: Role
) -> None:
    weights = attention()
    del weights[missing]
    one = state(weights, heads)
    assert list(QKIncrements().of_change(LayerChange(one, one, 1))) == []
    assert list(LogitBound().of_state(one)) == []


def test_without_heads_there_is_no_score_operator(state: MakeState, attention: Weights) -> None:
    one = state(attention())
    assert list(QKIncrements().of_change(LayerChange(one, one, 1))) == []
    assert list(LogitBound().of_state(one)) == []


@pytest.mark.parametrize("place", [(0, Role.Q), (0, Role.K), (1, Role.Q), (1, Role.K)])
def test_nonfinite_queries_or_keys_are_never_decomposed(
    state: MakeState,
    attention: Weights,
    heads: Heads,
    monkeypatch: pytest.MonkeyPatch,
    place: tuple[int, Role],
) -> None:
    weights, (side, role) = [attention(), attention()], place
    weights[side][role][0, 0] = math.inf
    monkeypatch.delattr(torch.linalg, "eigh")
    change = LayerChange(state(weights[0], heads), state(weights[1], heads), 1)
    assert list(QKIncrements().of_change(change)) == []
    if side == 1:
        assert list(LogitBound().of_state(change.after)) == []


def test_two_identical_checkpoints_have_zero_increments(
    state: MakeState, attention: Weights, heads: Heads, by_key: ByKey
) -> None:
    one = state(attention(), heads)
    found = by_key(QKIncrements().of_change(LayerChange(one, one, 1)))
    assert len(found) == 3 * 6 * 4
    for (metric, _, _), reading in found.items():
        zero = metric.endswith("_norm")
        assert (reading.value, reading.reason) == ((0.0, "") if zero else (None, "zero_update"))


def test_with_frozen_keys_only_the_second_order_is_undefined(
    state: MakeState, attention: Weights, heads: Heads, by_key: ByKey
) -> None:
    before, after = attention(), attention()
    after[Role.K] = before[Role.K]
    found = by_key(QKIncrements().of_change(LayerChange(state(before, heads), state(after, heads), 1)))
    for family, reason in zip(FAMILIES, ("", "", "zero_update"), strict=True):
        reading = found[f"{family}.effective_rank", "qk", "head.0"]
        assert (reading.value is None, reading.reason) == (bool(reason), reason)


def test_an_operator_that_stands_still_although_both_sides_move_is_a_zero_matrix(
    state: MakeState, attention: Weights, heads: Heads, by_key: ByKey
) -> None:
    before = {role: weight.double() for role, weight in attention().items()}
    after = before | {Role.Q: before[Role.Q] * 1.5, Role.K: before[Role.K] * 0.5}
    found = by_key(QKIncrements().of_change(LayerChange(state(before, heads), state(after, heads), 1)))
    assert {found["qk_first_order.effective_rank", "qk", f"head.{h}"].reason for h in range(4)} == {
        "zero_matrix"
    }
    assert found["qk_second_order.effective_rank", "qk", "head.0"].value is not None


@pytest.mark.parametrize("noisy", [Role.Q, Role.K])
def test_rounding_noise_of_either_side_flags_every_increment(
    state: MakeState, attention: Weights, heads: Heads, by_key: ByKey, noisy: Role
) -> None:
    weights, updates = attention(), attention()
    after = {role: weights[role] + (1e-3 if role is noisy else 1) * updates[role] for role in weights}
    before, after = ({role: w.bfloat16() for role, w in each.items()} for each in (weights, after))
    found = by_key(QKIncrements().of_change(LayerChange(state(before, heads), state(after, heads), 1)))
    assert {reading.reason for reading in found.values()} == {"below_resolution"}
    assert all(reading.value is not None for reading in found.values())


def test_every_quantity_of_every_family_is_listed() -> None:
    names = [metric.name for metric in QKIncrements.metrics]
    assert names == [f"{family}.{quantity}" for family in FAMILIES for quantity in QUANTITIES]

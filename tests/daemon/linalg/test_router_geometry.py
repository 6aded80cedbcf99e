from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import pytest
import torch
from torch import Tensor

from foreshock.daemon.linalg import conditioning, isotropic_entropy, row_norms, similarity

Gaussian = Callable[..., Tensor]
Scoring = Literal["softmax", "sigmoid"]


def test_orthogonal_unit_rows_have_conditioning_root_of_experts_less_one() -> None:
    assert conditioning(torch.eye(8).double()) == pytest.approx(math.sqrt(7), rel=1e-14)


def test_random_rows_have_conditioning_near_root_of_experts(gaussian: Gaussian) -> None:
    assert conditioning(gaussian(16, 4096)) == pytest.approx(math.sqrt(15), rel=0.1)


def test_identical_rows_have_conditioning_zero_and_similarity_one(gaussian: Gaussian) -> None:
    rows = gaussian(1, 32).expand(7, 32)
    assert conditioning(rows) == pytest.approx(0, abs=1e-14)
    found = similarity(rows)
    assert found is not None
    assert found.mean == pytest.approx(1)
    assert found.largest == pytest.approx(1)
    assert found.mean <= 1
    assert found.largest <= 1


@pytest.mark.parametrize("spread", [0.05, 0.2, 0.6])
def test_a_small_conditioning_bounds_every_cosine_from_below(gaussian: Gaussian, spread: float) -> None:
    for _ in range(20):
        noise = gaussian(6, 16)
        rows = gaussian(1, 16) * 3 + spread * noise
        epsilon = conditioning(rows)
        assert epsilon is not None
        if epsilon >= 1:
            continue
        unit = rows / rows.norm(dim=1, keepdim=True)
        assert (unit @ unit.T).min() >= 1 - 2 * epsilon**2 - 1e-12


def test_rows_that_cancel_have_no_conditioning(gaussian: Gaussian) -> None:
    rows = gaussian(3, 20)
    assert conditioning(torch.cat([rows, -rows])) is None
    assert conditioning(torch.zeros(4, 20).double()) is None


def test_similarity_is_the_mean_over_pairs_of_different_rows(gaussian: Gaussian) -> None:
    rows = gaussian(5, 12) + 0.3
    unit = rows / rows.norm(dim=1, keepdim=True)
    pairs = [(unit[i] @ unit[j]).item() for i in range(5) for j in range(5) if i != j]
    found = similarity(rows)
    assert found is not None
    assert found.mean == pytest.approx(sum(pairs) / len(pairs), rel=1e-12)
    assert found.largest == pytest.approx(max(pairs), rel=1e-12)


def test_rows_of_a_simplex_have_the_smallest_similarity() -> None:
    found = similarity(torch.eye(5).double() - 0.2)
    assert found is not None
    assert found.mean == pytest.approx(-0.25)
    assert found.mean >= -0.25


def test_one_row_alone_or_a_zero_row_has_no_similarity(gaussian: Gaussian) -> None:
    rows = gaussian(4, 6)
    rows[2] = 0
    assert similarity(rows) is None
    assert similarity(gaussian(1, 6)) is None


def test_row_norms_are_those_of_the_experts() -> None:
    rows = torch.tensor([[3.0, 4.0], [0.0, 0.0], [0.0, -2.0]])
    assert row_norms(rows).tolist() == [5.0, 0.0, 2.0]
    assert row_norms(torch.full((1, 4), 1e20)).item() == pytest.approx(2e20)


@pytest.mark.parametrize("scoring", ["softmax", "sigmoid"])
def test_a_zero_router_is_undecided(scoring: Scoring) -> None:
    assert isotropic_entropy(torch.zeros(8, 16).double(), scoring) == pytest.approx(math.log(8))


def test_small_logits_follow_their_expansion(gaussian: Gaussian) -> None:
    rows = 0.01 * gaussian(8, 64)
    centred = rows - rows.mean(0)
    expected = math.log(8) - centred.square().sum().item() / (2 * 8)
    deficit = math.log(8) - isotropic_entropy(rows)
    assert deficit == pytest.approx(math.log(8) - expected, rel=0.05)


def test_small_sigmoid_scores_follow_their_expansion(gaussian: Gaussian) -> None:
    rows = 0.01 * gaussian(8, 64)
    centred = rows - rows.mean(0)  # near 0, ln σ(l) = −ln 2 + l / 2
    expected = centred.square().sum().item() / (2 * 8) / 4
    assert math.log(8) - isotropic_entropy(rows, "sigmoid") == pytest.approx(expected, rel=0.05)


def test_a_common_part_of_all_rows_does_not_change_softmax_entropy(gaussian: Gaussian) -> None:
    rows = 0.1 * gaussian(8, 64)
    shifted = rows + gaussian(1, 64)
    assert isotropic_entropy(shifted) == pytest.approx(isotropic_entropy(rows), rel=1e-10)


@pytest.mark.parametrize("scoring", ["softmax", "sigmoid"])
@pytest.mark.parametrize("size", [1.0, 1e3, 1e20, 1e100])
def test_entropy_of_huge_logits_stays_in_its_range(gaussian: Gaussian, size: float, scoring: Scoring) -> None:
    found = isotropic_entropy(size * gaussian(8, 32), scoring)
    assert 0 <= found <= math.log(8)
    if size >= 1e20 and scoring == "softmax":
        assert found == pytest.approx(0, abs=1e-12)


def test_two_opposite_experts_are_a_coin_that_each_input_decides() -> None:
    rows = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)  # x = ±1, so the logits are ±(1, −1)
    share = 1 / (1 + math.exp(-2))
    expected = -share * math.log(share) - (1 - share) * math.log(1 - share)
    assert isotropic_entropy(rows) == pytest.approx(expected, rel=1e-12)


def test_sigmoid_scores_are_normalised() -> None:
    rows = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    share = 1 / (1 + math.exp(-1))  # σ(1) + σ(−1) = 1
    expected = -share * math.log(share) - (1 - share) * math.log(1 - share)
    assert isotropic_entropy(rows, "sigmoid") == pytest.approx(expected, rel=1e-12)


def test_the_same_seed_gives_the_same_entropy(gaussian: Gaussian) -> None:
    rows = gaussian(8, 32)
    assert isotropic_entropy(rows) == isotropic_entropy(rows)
    assert isotropic_entropy(rows, seed=1) != isotropic_entropy(rows, seed=2)
    assert isotropic_entropy(rows, seed=1) == pytest.approx(isotropic_entropy(rows, seed=2), rel=0.05)


def test_any_number_of_samples_is_drawn(gaussian: Gaussian) -> None:
    rows = 0.1 * gaussian(4, 8)
    assert isotropic_entropy(rows, num_samples=300) == pytest.approx(isotropic_entropy(rows), rel=0.02)
    assert isotropic_entropy(rows, num_samples=1) == pytest.approx(isotropic_entropy(rows), rel=0.5)


def test_a_single_expert_leaves_no_doubt(gaussian: Gaussian) -> None:
    assert isotropic_entropy(gaussian(1, 16)) == 0

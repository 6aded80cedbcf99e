from __future__ import annotations

import math
from collections.abc import Callable
from statistics import fmean

import pytest
import torch
from torch import Tensor

from foreshock.daemon.errors import NumericalError
from foreshock.daemon.linalg import QKIncrement, Stored, qk_increment, score_norms, spectra

Gaussian = Callable[..., Tensor]


def increment(
    q: Tensor,
    dq: Tensor,
    k: Tensor,
    dk: Tensor,
    *,
    dtype: torch.dtype = torch.float64,
    limit: int = 1 << 20,
) -> QKIncrement:
    return qk_increment((Stored(q), Stored(dq)), (Stored(k), Stored(dk)), dtype, limit)


def dense(q: Tensor, dq: Tensor, k: Tensor, dk: Tensor) -> QKIncrement:
    """The same by full singular value decompositions of M × M matrices."""
    group = len(q) // len(k)
    k, dk = k.repeat_interleave(group, 0), dk.repeat_interleave(group, 0)
    first, second = dq.mT @ k + q.mT @ dk, dq.mT @ dk
    total = (q + dq).mT @ (k + dk) - q.mT @ k if dq.abs().max() > 1e-3 else first + second
    rank = min(2 * q.shape[1], q.shape[2])
    return QKIncrement(
        torch.linalg.svdvals(total)[:, :rank],
        torch.linalg.svdvals(first)[:, :rank],
        torch.linalg.svdvals(second)[:, : min(q.shape[1], q.shape[2])],
    )


def assert_same_singular_values(found: QKIncrement, expected: QKIncrement, rtol: float) -> None:
    torch.testing.assert_close(found.total.double(), expected.total, rtol=rtol, atol=0)
    torch.testing.assert_close(found.first_order.double(), expected.first_order, rtol=rtol, atol=0)
    torch.testing.assert_close(found.second_order.double(), expected.second_order, rtol=rtol, atol=0)


def assert_same_spectra(found: QKIncrement, expected: QKIncrement, rel: float = 1e-10) -> None:
    """Where singular values are zero, those found are rounding errors; what is read from them agrees."""
    for ours, theirs in (
        (found.total, expected.total),
        (found.first_order, expected.first_order),
        (found.second_order, expected.second_order),
    ):
        for mine, yours in zip(spectra(ours), spectra(theirs), strict=True):
            assert mine.frobenius_norm == pytest.approx(yours.frobenius_norm, rel=rel)
            assert mine.spectral_norm == pytest.approx(yours.spectral_norm, rel=rel)
            assert mine.effective_rank == pytest.approx(yours.effective_rank, rel=rel)
            assert mine.stable_rank == pytest.approx(yours.stable_rank, rel=rel)


@pytest.mark.parametrize("size", [1.0, 1e-3, 1e-5, 1e-7])
@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
def test_increments_agree_with_dense_ones_down_to_the_smallest_updates(
    gaussian: Gaussian, size: float, dtype: torch.dtype, rtol: float
) -> None:
    weights = (gaussian(3, 8, 40), size * gaussian(3, 8, 40), gaussian(3, 8, 40), size * gaussian(3, 8, 40))
    assert_same_singular_values(increment(*weights, dtype=dtype), dense(*weights), rtol)


@pytest.mark.parametrize(("q_size", "k_size"), [(1e-7, 1e-2), (1e-2, 1e-7)])
def test_updates_of_very_different_size_are_both_kept(
    gaussian: Gaussian, q_size: float, k_size: float
) -> None:
    weights = (
        gaussian(2, 6, 30),
        q_size * gaussian(2, 6, 30),
        gaussian(2, 6, 30),
        k_size * gaussian(2, 6, 30),
    )
    assert_same_spectra(increment(*weights), dense(*weights))


def test_weights_of_very_different_size_do_not_matter(gaussian: Gaussian) -> None:
    q, dq, k, dk = (gaussian(2, 6, 30) for _ in range(4))
    plain = increment(q, 1e-3 * dq, k, 1e-3 * dk)
    scaled = increment(1e30 * q, 1e27 * dq, 1e-40 * k, 1e-43 * dk)
    torch.testing.assert_close(1e10 * scaled.first_order, plain.first_order, rtol=1e-10, atol=0)
    torch.testing.assert_close(1e10 * scaled.total, plain.total, rtol=1e-10, atol=0)


def test_a_key_head_serves_its_group_of_consecutive_query_heads(gaussian: Gaussian) -> None:
    q, dq = gaussian(6, 5, 24), 0.01 * gaussian(6, 5, 24)
    k, dk = gaussian(2, 5, 24), 0.01 * gaussian(2, 5, 24)
    grouped = increment(q, dq, k, dk)
    repeated = increment(q, dq, k.repeat_interleave(3, 0), dk.repeat_interleave(3, 0))
    assert torch.equal(grouped.total, repeated.total)
    assert torch.equal(grouped.first_order, repeated.first_order)
    assert torch.equal(grouped.second_order, repeated.second_order)
    assert_same_singular_values(grouped, dense(q, dq, k, dk), 1e-10)


def test_one_key_head_may_serve_all(gaussian: Gaussian) -> None:
    weights = (gaussian(4, 5, 24), gaussian(4, 5, 24), gaussian(1, 5, 24), gaussian(1, 5, 24))
    assert_same_singular_values(increment(*weights), dense(*weights), 1e-10)


@pytest.mark.parametrize("limit", [1, 500, 1_000_000])
def test_increments_do_not_depend_on_how_many_heads_are_converted_at_a_time(
    gaussian: Gaussian, limit: int
) -> None:
    weights = (gaussian(6, 5, 24), gaussian(6, 5, 24), gaussian(3, 5, 24), gaussian(3, 5, 24))
    assert_same_singular_values(increment(*weights, limit=limit), dense(*weights), 1e-10)


def test_an_update_may_be_given_as_two_snapshots_in_bfloat16(gaussian: Gaussian) -> None:
    before, after = gaussian(2, 5, 24, dtype=torch.bfloat16), gaussian(2, 5, 24, dtype=torch.bfloat16)
    other, later = gaussian(2, 5, 24, dtype=torch.bfloat16), gaussian(2, 5, 24, dtype=torch.bfloat16)
    found = qk_increment((Stored(before), Stored(after, before)), (Stored(other), Stored(later, other)))
    q, k = before.double(), other.double()
    assert_same_singular_values(found, dense(q, after.double() - q, k, later.double() - k), 1e-10)


def test_an_update_of_rank_one_is_no_difficulty(gaussian: Gaussian) -> None:
    q, k, dk = gaussian(2, 6, 30), gaussian(2, 6, 30), 1e-3 * gaussian(2, 6, 30)
    dq = 1e-3 * gaussian(2, 6, 1) @ gaussian(2, 1, 30)
    found = increment(q, dq, k, dk)
    assert_same_spectra(found, dense(q, dq, k, dk))
    assert [head.effective_rank for head in spectra(found.second_order)] == [pytest.approx(1)] * 2


def test_an_update_along_its_own_weight_is_no_difficulty(gaussian: Gaussian) -> None:
    q, k = gaussian(2, 6, 30), gaussian(2, 6, 30)
    weights = (q, -1e-4 * q, k, -1e-4 * k)  # what weight decay alone does
    assert_same_spectra(increment(*weights), dense(*weights))


@pytest.mark.parametrize("frozen", ["q", "k"])
def test_with_one_side_frozen_the_first_order_is_everything(gaussian: Gaussian, frozen: str) -> None:
    q, k, update = gaussian(2, 6, 30), gaussian(2, 6, 30), 1e-3 * gaussian(2, 6, 30)
    still = torch.zeros_like(update)
    dq, dk = (still, update) if frozen == "q" else (update, still)
    found = increment(q, dq, k, dk)
    expected = torch.linalg.svdvals(dq.mT @ k + q.mT @ dk)[:, :6]
    torch.testing.assert_close(found.first_order[:, :6], expected, rtol=1e-10, atol=0)
    torch.testing.assert_close(found.total[:, :6], expected, rtol=1e-10, atol=0)
    assert found.first_order[:, 6:].max() < 1e-7 * expected.max()
    assert not found.second_order.any()


def test_without_any_update_all_increments_are_exactly_zero(gaussian: Gaussian) -> None:
    q, k = gaussian(2, 6, 30), gaussian(2, 6, 30)
    found = increment(q, torch.zeros_like(q), k, torch.zeros_like(k))
    assert not found.total.any()
    assert not found.first_order.any()
    assert not found.second_order.any()


def test_growth_out_of_zero_weights_is_all_of_second_order(gaussian: Gaussian) -> None:
    dq, dk = gaussian(2, 6, 30), gaussian(2, 6, 30)
    found = increment(torch.zeros_like(dq), dq, torch.zeros_like(dk), dk)
    expected = torch.linalg.svdvals(dq.mT @ dk)[:, :6]
    assert not found.first_order.any()
    torch.testing.assert_close(found.second_order, expected, rtol=1e-10, atol=0)
    torch.testing.assert_close(found.total[:, :6], expected, rtol=1e-10, atol=0)


def test_an_increment_that_cancels_is_zero_and_not_noise(gaussian: Gaussian) -> None:
    q, k = gaussian(2, 6, 30), gaussian(2, 6, 30)
    found = increment(q, 1e-3 * q, k, -1e-3 * k)  # what q gains k loses: the product stands still
    assert not found.first_order.any()
    assert found.second_order.all()


def test_heads_wider_than_the_model_have_the_models_rank(gaussian: Gaussian) -> None:
    weights = (gaussian(2, 8, 5), gaussian(2, 8, 5), gaussian(2, 8, 5), gaussian(2, 8, 5))
    found = increment(*weights)
    assert found.total.shape == found.first_order.shape == found.second_order.shape == (2, 5)
    assert_same_singular_values(found, dense(*weights), 1e-9)


def test_two_blocks_wider_than_the_model_have_the_models_rank(gaussian: Gaussian) -> None:
    weights = (gaussian(2, 8, 12), gaussian(2, 8, 12), gaussian(2, 8, 12), gaussian(2, 8, 12))
    found = increment(*weights)
    assert found.total.shape == (2, 12)
    assert found.second_order.shape == (2, 8)
    assert_same_singular_values(found, dense(*weights), 1e-9)


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_nonfinite_weights_are_refused(gaussian: Gaussian, place: int, poison: float) -> None:
    weights = [gaussian(2, 4, 10) for _ in range(4)]
    weights[place][1, 2, 3] = poison
    with pytest.raises(NumericalError, match="NaN or Inf"):
        increment(*weights)


def test_the_score_norm_is_that_of_the_dense_operator(gaussian: Gaussian) -> None:
    q, k = gaussian(6, 5, 24), gaussian(2, 5, 24)
    expected = torch.linalg.svdvals(q.mT @ k.repeat_interleave(3, 0))[:, 0]
    torch.testing.assert_close(score_norms(Stored(q), Stored(k)), expected, rtol=1e-10, atol=0)
    torch.testing.assert_close(
        score_norms(Stored(q), Stored(k), max_elements=1), expected, rtol=1e-10, atol=0
    )


def test_the_score_norm_of_zero_queries_is_zero(gaussian: Gaussian) -> None:
    assert score_norms(Stored(torch.zeros(2, 3, 9)), Stored(gaussian(2, 3, 9))).tolist() == [0.0, 0.0]


def first_order_rank(gaussian: Gaussian, share: float) -> float:
    """Mean S₂(Δ2) of Gaussian heads whose ΔW_q gets a rank-one part that makes up `share` of its energy."""
    num_heads, head_dim, width = 8, 64, 768
    q, k, dq, dk = (gaussian(num_heads, head_dim, width) for _ in range(4))
    direction = gaussian(num_heads, head_dim, 1) @ gaussian(num_heads, 1, width)
    direction /= torch.linalg.matrix_norm(direction, keepdim=True)
    size = math.sqrt(share / (1 - share)) * torch.linalg.matrix_norm(dq, keepdim=True)
    found = increment(q, 1e-3 * (dq + size * direction), k, 1e-3 * dk)
    ranks = [head.effective_rank for head in spectra(found.first_order)]
    return fmean(rank for rank in ranks if rank is not None)


@pytest.mark.parametrize(("share", "expected"), [(0.0, 109), (0.1, 101), (0.3, 71), (0.5, 42), (0.9, 3.7)])
def test_a_rank_one_part_of_the_query_update_takes_the_rank_of_the_increment(
    gaussian: Gaussian, share: float, expected: float
) -> None:
    assert first_order_rank(gaussian, share) == pytest.approx(expected, rel=0.05)


def test_without_a_rank_one_part_the_rank_is_almost_that_of_noise(gaussian: Gaussian) -> None:
    assert first_order_rank(gaussian, 0.0) == pytest.approx(108.7, abs=0.5)

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from foreshock.daemon.linalg import (
    Stored,
    conditioning,
    qk_increment,
    similarity,
    singular_values,
    spectra,
)

seeds = st.integers(0, 2**31)
sizes = st.integers(1, 9)
scales = st.sampled_from([1e-30, 1e-5, 0.3, 7.0, 1e20])


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rotation(seed: int, size: int) -> Tensor:
    q, _ = torch.linalg.qr(draw(seed + 1, size, size))
    return q


@settings(max_examples=50, deadline=None)
@given(seeds, sizes, sizes)
def test_rotations_leave_singular_values_alone(seed: int, rows: int, columns: int) -> None:
    matrix = draw(seed, rows, columns)
    rotated = rotation(seed, rows) @ matrix @ rotation(seed, columns)
    torch.testing.assert_close(singular_values(rotated), singular_values(matrix), rtol=1e-9, atol=1e-7)


@settings(max_examples=50, deadline=None)
@given(seeds, sizes, sizes, scales)
def test_scaling_a_matrix_scales_its_norms_and_leaves_its_ranks(
    seed: int, rows: int, columns: int, scale: float
) -> None:
    matrix = draw(seed, rows, columns)
    (plain,), (scaled,) = (spectra(singular_values(m).unsqueeze(0)) for m in (matrix, scale * matrix))
    torch.testing.assert_close(scaled.frobenius_norm, scale * plain.frobenius_norm, rtol=1e-12, atol=0)
    torch.testing.assert_close(scaled.effective_rank, plain.effective_rank, rtol=1e-9, atol=0)
    torch.testing.assert_close(scaled.stable_rank, plain.stable_rank, rtol=1e-9, atol=0)


@settings(max_examples=50, deadline=None)
@given(seeds, sizes, sizes)
def test_ranks_lie_between_one_and_the_smaller_side(seed: int, rows: int, columns: int) -> None:
    (found,) = spectra(singular_values(draw(seed, rows, columns)).unsqueeze(0))
    assert found.stable_rank is not None
    assert found.effective_rank is not None
    assert 1 <= found.stable_rank <= found.effective_rank * (1 + 1e-9)
    assert found.effective_rank <= min(rows, columns) * (1 + 1e-9)


def increments(q: Tensor, dq: Tensor, k: Tensor, dk: Tensor) -> list[Tensor]:
    found = qk_increment((Stored(q), Stored(dq)), (Stored(k), Stored(dk)))
    return [found.total, found.first_order, found.second_order]


@settings(max_examples=30, deadline=None)
@given(seeds, st.integers(1, 5), st.integers(1, 12))
def test_rotating_a_head_or_the_model_leaves_increments_alone(seed: int, head_dim: int, width: int) -> None:
    weights = draw(seed, 4, 3, head_dim, width)
    rotated = rotation(seed, head_dim) @ weights @ rotation(seed, width)
    for ours, theirs in zip(increments(*rotated), increments(*weights), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


@settings(max_examples=30, deadline=None)
@given(seeds, st.permutations(range(4)))
def test_permuting_heads_permutes_increments(seed: int, order: list[int]) -> None:
    weights = draw(seed, 4, 4, 3, 10)
    for ours, theirs in zip(increments(*weights[:, order]), increments(*weights), strict=True):
        torch.testing.assert_close(ours, theirs[order], rtol=1e-9, atol=1e-9)


@settings(max_examples=30, deadline=None)
@given(seeds, scales)
def test_moving_scale_from_keys_to_queries_leaves_increments_alone(seed: int, scale: float) -> None:
    q, dq, k, dk = draw(seed, 4, 2, 3, 10)
    moved = increments(scale * q, scale * dq, k / scale, dk / scale)
    for ours, theirs in zip(moved, increments(q, dq, k, dk), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


@settings(max_examples=50, deadline=None)
@given(seeds, st.integers(2, 9), st.integers(2, 9), scales)
def test_router_geometry_ignores_rotation_scale_and_order(
    seed: int, num_experts: int, width: int, scale: float
) -> None:
    rows = draw(seed, num_experts, width) + 1
    order = torch.randperm(num_experts, generator=torch.Generator().manual_seed(seed))
    changed = scale * rows[order] @ rotation(seed, width)
    torch.testing.assert_close(conditioning(changed), conditioning(rows), rtol=1e-8, atol=0)
    ours, theirs = similarity(changed), similarity(rows)
    assert ours is not None
    assert theirs is not None
    torch.testing.assert_close(ours.mean, theirs.mean, rtol=0, atol=1e-9)
    torch.testing.assert_close(ours.largest, theirs.largest, rtol=0, atol=1e-9)

"""The score operator W_qᵀ W_k of every head, and how it changes, without ever forming it.

With the updates ΔW_q and ΔW_k of a head, whose weights are (D, M),

    Δ1 = W_q'ᵀ W_k' − W_qᵀ W_k = Δ2 + Δ3,   Δ2 = ΔW_qᵀ W_k + W_qᵀ ΔW_k,   Δ3 = ΔW_qᵀ ΔW_k.

All of them are Aᵀ B with A = [W_q; ΔW_q], every block scaled to norm 1, and B = T [W_k; ΔW_k], likewise:
T says which product of blocks takes part, times its two norms. With A Aᵀ = S Sᵀ, the non-zero singular
values of Aᵀ B are the square roots of the eigenvalues of Sᵀ (B Bᵀ) S, a 2D × 2D matrix. Unit blocks keep
an update of 1e-7 of its weight as exact as the weight; T keeps Δ1 free of any cancellation.

The Gram matrix of [W_k; ΔW_k] is computed once per key head and serves its G consecutive query heads.

Rotary positions act between W_qᵀ and W_k; this is the operator of two tokens at distance 0.

Source: arXiv:2606.28116 §3.2 for Δ1, Δ2 and Δ3; the compressed core is ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from foreshock.daemon.linalg.eigenvalues import eigenvalues, refuse_nonfinite, square_root
from foreshock.daemon.linalg.stored import MAX_ELEMENTS, Stored, or_one, vector_norms

Products = tuple[tuple[int, int], tuple[int, int]]
"""Which products take part: row i is block i of q (weight, update), column j block j of k; 1 for yes."""

TOTAL: Products = ((0, 1), (1, 1))
FIRST_ORDER: Products = ((0, 1), (1, 0))


@dataclass(frozen=True, slots=True)
class QKIncrement:
    """Singular values of a layer's score increments, largest first.

    Attributes:
        total: of Δ1, (H, min(2D, M)).
        first_order: of Δ2, (H, min(2D, M)).
        second_order: of Δ3, (H, min(D, M)).
    """

    total: Tensor
    first_order: Tensor
    second_order: Tensor


def qk_increment(
    q: tuple[Stored, Stored],
    k: tuple[Stored, Stored],
    dtype: torch.dtype = torch.float64,
    max_elements: int = MAX_ELEMENTS,
) -> QKIncrement:
    """Singular values of Δ1, Δ2 and Δ3 for every query head.

    Args:
        q: the base's weight and its update, each (H, D, M).
        k: likewise, each (K, D, M); K divides H.
        dtype: to compute in.
        max_elements: of the heads that are converted at a time; at least one head is.

    Returns:
        Zeros for an increment that is zero, or that cancels down to rounding errors.

    Raises:
        NumericalError: NaN or Inf in the input, or a result that contradicts its norm.
    """
    parts = []
    for queries, keys in _pairs(q, k, dtype, max_elements):
        root = square_root(queries.gram)
        total = _sum_of_products(queries, root, keys, TOTAL)
        first_order = _sum_of_products(queries, root, keys, FIRST_ORDER)
        parts.append((total, first_order, _product(queries.block(1), keys.block(1))))
    return QKIncrement(*(torch.cat(each) for each in zip(*parts, strict=True)))


def score_norms(
    q_HDM: Stored,
    k_KDM: Stored,
    dtype: torch.dtype = torch.float64,
    max_elements: int = MAX_ELEMENTS,
) -> Tensor:
    """σ₁(W_qᵀ W_k) of every query head, (H,); 0 where either weight is zero or has no elements.

    Raises:
        NumericalError: as for `qk_increment`.
    """
    pairs = _pairs((q_HDM,), (k_KDM,), dtype, max_elements)
    return torch.cat([_product(queries, keys)[:, :1].sum(-1) for queries, keys in pairs])


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Heads of stacked blocks, each block scaled to Frobenius norm 1 (or zero).

    Attributes:
        gram: inner products of all rows, (H, B·D, B·D).
        norms: that the blocks had, (H, B).
        width: M.
    """

    gram: Tensor
    norms: Tensor
    width: int

    @property
    def rank(self) -> int:
        """The largest that B·D rows of length M can have."""
        return min(self.gram.shape[-1], self.width)

    def heads(self, index: Tensor) -> _Blocks:
        """These heads, repeated as the index says."""
        return _Blocks(self.gram[index], self.norms[index], self.width)

    def block(self, index: int) -> _Blocks:
        """One block alone."""
        size = self.gram.shape[-1] // self.norms.shape[-1]
        rows = slice(index * size, (index + 1) * size)
        return _Blocks(self.gram[:, rows, rows], self.norms[:, index : index + 1], self.width)


def _pairs(
    q: tuple[Stored, ...], k: tuple[Stored, ...], dtype: torch.dtype, max_elements: int
) -> Iterator[tuple[_Blocks, _Blocks]]:
    """Query heads a few at a time, with the key head of each."""
    parts = list(_chunks(k, dtype, max_elements))
    keys = _Blocks(
        torch.cat([each.gram for each in parts]), torch.cat([each.norms for each in parts]), parts[0].width
    )
    group, start = len(q[0].tensor) // len(k[0].tensor), 0
    for queries in _chunks(q, dtype, max_elements):
        stop = start + len(queries.gram)
        yield queries, keys.heads(torch.arange(start, stop, device=keys.gram.device) // group)
        start = stop


def _chunks(stored: tuple[Stored, ...], dtype: torch.dtype, max_elements: int) -> Iterator[_Blocks]:
    chunks = (each.heads(max_elements // len(stored)) for each in stored)
    for blocks in zip(*chunks, strict=True):
        units, norms = zip(*(_unit(block.dense(dtype)) for block in blocks), strict=True)
        stacked = torch.cat(units, dim=1)
        yield _Blocks(stacked @ stacked.mT, torch.stack(norms, dim=1), stacked.shape[-1])


def _unit(heads_HDM: Tensor) -> tuple[Tensor, Tensor]:
    """The heads divided in place by their Frobenius norms, and these, (H,)."""
    norms = vector_norms(heads_HDM, (1, 2))
    refuse_nonfinite(norms)
    return heads_HDM.div_(or_one(norms)[:, None, None]), norms


def _sum_of_products(left: _Blocks, left_root: Tensor, right: _Blocks, products: Products) -> Tensor:
    """Singular values of Σ leftᵢᵀ rightⱼ over the products that take part."""
    chosen = torch.tensor(products, dtype=left.norms.dtype, device=left.norms.device)
    factors = left.norms[:, :, None] * right.norms[:, None, :] * chosen
    largest = factors.amax((1, 2))
    transform = factors / or_one(largest)[:, None, None]
    head_dim = right.gram.shape[-1] // 2
    by_block = right.gram.reshape(len(right.gram), 2, head_dim, 2, head_dim)
    mixed = torch.einsum("hij,hjakb,hlk->hialb", transform, by_block, transform)
    sigma = _core_singular_values(left.gram, left_root, mixed.flatten(3, 4).flatten(1, 2))
    return largest[:, None] * sigma[:, : left.rank]


def _product(left: _Blocks, right: _Blocks) -> Tensor:
    """Singular values of leftᵀ right, one block each."""
    sigma = _core_singular_values(left.gram, square_root(left.gram), right.gram)
    return left.norms * right.norms * sigma[:, : left.rank]


def _core_singular_values(left_gram: Tensor, left_root: Tensor, right_gram: Tensor) -> Tensor:
    """Singular values of AᵀB from A Aᵀ = S Sᵀ and B Bᵀ, (H, N).

    Both are scaled to the order of 1, so that their rounding errors are known: a product whose energy is
    not above them has cancelled, and counts as zero.
    """
    if not left_gram.numel():
        return left_gram.new_zeros(left_gram.shape[:-1])
    largest_left = left_root.square().sum(-2).amax(-1)
    bound = or_one(largest_left * torch.linalg.matrix_norm(right_gram))
    energy = (left_gram * right_gram).sum((1, 2)) / bound
    core = left_root.mT @ right_gram @ left_root / bound[:, None, None]
    shares = eigenvalues(core, energy)
    rounding = left_gram.shape[-1] * torch.finfo(core.dtype).eps
    return torch.where(energy > rounding, bound * shares.mT, 0).mT.sqrt()

"""Weights in their stored dtype, and differences of two, converted only block by block.

The update of an 8192 × 8192 matrix takes 512 MiB in float64, and so would each of its operands. Here
nothing but the current block is ever converted, so that the Gram matrix is the largest thing in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

MAX_ELEMENTS = 1 << 20
"""Elements of a converted block: 8 MiB of float64. A few such blocks live at a time."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor as stored, or the difference of two.

    Attributes:
        tensor: in any floating-point dtype, float8 included; views are fine.
        minus: of the same shape; both are converted before they are subtracted, since a difference
            taken in a narrow dtype overflows or rounds, and float8 has none.
    """

    tensor: Tensor
    minus: Tensor | None = None

    def __post_init__(self) -> None:
        assert self.minus is None or self.minus.shape == self.tensor.shape

    @property
    def shape(self) -> torch.Size:
        """Of the tensor."""
        return self.tensor.shape

    def __getitem__(self, index: int | slice | tuple[slice, ...]) -> Stored:
        return self._view(lambda tensor: tensor[index])

    def dense(self, dtype: torch.dtype = torch.float64) -> Tensor:
        """The values in memory of their own, which the caller may overwrite."""
        values = self.tensor.to(dtype, copy=True)
        return values if self.minus is None else values.sub_(self.minus.to(dtype))

    def blocks(self, max_elements: int = MAX_ELEMENTS) -> Iterator[Stored]:
        """Parts of at most `max_elements` elements that make up the whole; none if it is empty."""
        numel = self.tensor.numel()
        if numel <= max_elements:
            if numel:
                yield self
            return
        axis = max(range(self.tensor.dim()), key=lambda d: self.shape[d])
        half = self.shape[axis] // 2
        for part in (slice(None, half), slice(half, None)):
            yield from self[(*[slice(None)] * axis, part)].blocks(max_elements)

    def heads(self, max_elements: int = MAX_ELEMENTS) -> Iterator[Stored]:
        """Consecutive heads of (H, R, C), as many at a time as `max_elements` holds, but at least one."""
        num_heads, num_rows, num_columns = self.shape
        size = max(1, max_elements // max(1, num_rows * num_columns))
        for start in range(0, num_heads, size):
            yield self[start : start + size]

    def split_rows(self, num_heads: int) -> Stored:
        """A view of shape (H, R / H, C): consecutive rows belong to one head."""
        num_rows, num_columns = self.shape
        return self._view(lambda tensor: tensor.reshape(num_heads, num_rows // num_heads, num_columns))

    def split_columns(self, num_heads: int) -> Stored:
        """A view of shape (H, R, C / H): consecutive columns belong to one head."""
        num_rows, num_columns = self.shape
        split = (num_rows, num_heads, num_columns // num_heads)
        return self._view(lambda tensor: tensor.reshape(split).movedim(1, 0))

    def _view(self, view: Callable[[Tensor], Tensor]) -> Stored:
        return Stored(view(self.tensor), None if self.minus is None else view(self.minus))


def count_nonfinite(tensor: Tensor, max_elements: int = MAX_ELEMENTS) -> int:
    """How many NaN and Inf a tensor of any dtype and shape holds."""
    # Not every float8 has isfinite; a float64 would overflow in the dtype that serves the narrow ones.
    dtype = tensor.dtype if tensor.dtype.itemsize > 2 else torch.float32
    finite = (torch.isfinite(block.tensor.to(dtype)) for block in Stored(tensor).blocks(max_elements))
    return sum(block.numel() - int(block.sum()) for block in finite)


def vector_norms(values: Tensor, dim: int | tuple[int, ...], *, keepdim: bool = False) -> Tensor:
    """Euclidean norms along `dim`, scaled by the largest magnitude so that squares stay in range."""
    if not values.numel():
        return values.sum(dim, keepdim=keepdim)
    largest = torch.linalg.vector_norm(values, math.inf, dim, keepdim=True)
    norms: Tensor = largest * torch.linalg.vector_norm(values / or_one(largest), 2, dim, keepdim=True)
    return norms if keepdim else norms.squeeze(dim)


def or_one(values: Tensor) -> Tensor:
    """The values as divisors: 1 in place of 0."""
    return torch.where(values == 0, 1, values)


def frobenius_norm(
    matrix: Stored, dtype: torch.dtype = torch.float64, max_elements: int = MAX_ELEMENTS
) -> float:
    """‖A‖_F of a tensor of any shape; 0 if it is empty, NaN if any element is NaN or Inf."""
    norms = (vector_norms(block.dense(dtype).flatten(), 0) for block in matrix.blocks(max_elements))
    return math.hypot(*(norm.item() for norm in norms))


def cosine(
    left: Stored, right: Stored, dtype: torch.dtype = torch.float64, max_elements: int = MAX_ELEMENTS
) -> float | None:
    """⟨A, B⟩ / (‖A‖_F ‖B‖_F) of two tensors of one shape.

    Returns:
        In [−1, 1]; None when either is zero or empty.
    """
    norms = frobenius_norm(left, dtype, max_elements), frobenius_norm(right, dtype, max_elements)
    if 0 in norms:
        return None
    pairs = zip(left.blocks(max_elements), right.blocks(max_elements), strict=True)
    total = math.fsum(
        torch.sum(a.dense(dtype).div_(norms[0]) * b.dense(dtype).div_(norms[1])).item() for a, b in pairs
    )
    return total if math.isnan(total) else min(max(total, -1.0), 1.0)


def gram(
    matrix: Stored,
    scale: float = 1.0,
    dtype: torch.dtype = torch.float64,
    max_elements: int = MAX_ELEMENTS,
) -> Tensor:
    """Inner products of the rows, or of the columns where these are fewer, after division by `scale`.

    Returns:
        AAᵀ / scale² of shape (R, R) for R ≤ C, else AᵀA / scale² of shape (C, C).
    """
    num_rows, num_columns = matrix.shape
    smaller, larger = min(num_rows, num_columns), max(num_rows, num_columns)
    total = torch.zeros(smaller, smaller, dtype=dtype, device=matrix.tensor.device)
    thickness = max(1, max_elements // max(1, smaller))
    for start in range(0, larger, thickness):
        part = slice(start, start + thickness)
        if num_rows <= num_columns:
            block = matrix[:, part].dense(dtype).div_(scale)
        else:
            block = matrix[part].dense(dtype).div_(scale).mT
        total.addmm_(block, block.mT)
    return total

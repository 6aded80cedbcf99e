"""Ranges of a flattened tensor as blocks of the tensor, and blocks of saved views.

Optimizers and FSDP keep parameters flattened, one after the other, and cut the result without regard for
rows. Such a range of one parameter is at most `2 · dimensions − 1` blocks: an end of a row, whole rows, the
beginning of a row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from foreshock.daemon.formats.base import contiguous_strides
from foreshock.daemon.formats.chunk_cover import Box, Index
from foreshock.daemon.formats.torch_zip import TensorRef


def boxes_of_range(shape: Index, start: int, stop: int) -> Iterator[tuple[int, Box]]:
    """The elements `start` to `stop` of a flattened tensor as boxes, in order, each with its first element.

    Args:
        shape: of the tensor.
        start, stop: of the range, within `0 … prod(shape)`.

    Yields:
        (first element of the box counted from the tensor's first, (index of it, shape of the box)).
    """
    if start >= stop:
        return
    if not shape:
        yield 0, ((), ())
        return
    row = math.prod(shape[1:])
    first, last = -(-start // row), stop // row
    if first > last:  # within one row
        yield from _in_row(shape, last, start - last * row, stop - last * row)
        return
    if start < first * row:
        yield from _in_row(shape, first - 1, start - (first - 1) * row, row)
    if first < last:
        index = (first, *(0 for _ in shape[1:]))
        yield first * row, (index, (last - first, *shape[1:]))
    if last * row < stop:
        yield from _in_row(shape, last, 0, stop - last * row)


def _in_row(shape: Index, row: int, start: int, stop: int) -> Iterator[tuple[int, Box]]:
    size = math.prod(shape[1:])
    for first, (index, inner) in boxes_of_range(shape[1:], start, stop):
        yield row * size + first, ((row, *index), (1, *inner))


def flat_view(ref: TensorRef, first: int, shape: Index) -> TensorRef:
    """A dense block of a one-dimensional, dense saved tensor, from its element `first` on."""
    return replace(ref, offset=ref.offset + first, shape=shape, strides=contiguous_strides(shape))


def narrowed(ref: TensorRef, dimension: int, start: int, size: int) -> TensorRef:
    """`size` indices of one dimension of a saved tensor, from `start` on, as `torch.narrow`."""
    shape = (*ref.shape[:dimension], size, *ref.shape[dimension + 1 :])
    return replace(ref, offset=ref.offset + start * ref.strides[dimension], shape=shape)

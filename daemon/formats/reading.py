"""From pieces to tensors: the one reader behind every format.

Bytes go straight from the file into the tensor's own memory where the layout allows it; strided pieces
pass through a buffer of bounded size. Only the rows that are asked for are read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from foreshock.daemon.errors import CorruptCheckpoint, UnsupportedCheckpoint
from foreshock.daemon.formats.base import (
    READABLE_DTYPES,
    Checkpoint,
    Piece,
    ReadsItself,
    contiguous_strides,
)
from foreshock.daemon.formats.files import Files
from foreshock.daemon.formats.quoting import shown

MAX_BUFFER_BYTES = 64 << 20
"""What a strided piece may take beside the tensor itself."""

_DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in READABLE_DTYPES}


def read_tensor(checkpoint: Checkpoint, name: str, files: Files, rows: slice | None = None) -> Tensor:
    """One tensor, or a range of its rows, in its stored dtype on the CPU.

    Args:
        checkpoint: opened.
        name: as saved.
        files: of the checkpoint's root; counts what is read.
        rows: along the first dimension, step 1; None for all.

    Raises:
        KeyError: no tensor has that name.
        UnsupportedCheckpoint: a dtype that cannot be measured (integers, packed 4-bit …), or a tensor
            that does not fit into memory.
        CorruptCheckpoint: the pieces do not cover the tensor.
        VanishedCheckpoint, UnreadableCheckpoint: see `Files.read_into`.
    """
    info = checkpoint.tensors[name]
    if info.dtype not in _DTYPES:
        raise UnsupportedCheckpoint(
            f"{checkpoint.root}: tensor {shown(name)} is {info.dtype};"
            f" only {', '.join(READABLE_DTYPES)} can be measured"
        )
    start, stop, _ = (rows or slice(None)).indices(info.shape[0]) if info.shape else (0, 0, 1)
    stop = max(start, stop)
    if isinstance(checkpoint, ReadsItself):
        return checkpoint.read(name, files, start, stop)
    shape = (stop - start, *info.shape[1:]) if info.shape else ()
    tensor = _allocate(shape, _DTYPES[info.dtype], f"{checkpoint.root}: tensor {shown(name)}")
    filled = 0
    for piece in checkpoint.pieces(name):
        part = rows_of(piece, start, stop, tensor.element_size()) if info.shape else piece
        if part.span:
            _fill(tensor, part, files)
            filled += math.prod(part.shape)
    if filled != tensor.numel():
        raise CorruptCheckpoint(
            f"{checkpoint.root}: {filled} of {tensor.numel()} elements of {shown(name)} are there"
        )
    return tensor


def rows_of(piece: Piece, start: int, stop: int, item_bytes: int) -> Piece:
    """The part of a piece that lies in rows `start` to `stop`, placed relative to `start`."""
    first = max(start, piece.destination[0])
    last = max(min(stop, piece.destination[0] + piece.shape[0]), first)
    skipped = first - piece.destination[0]
    return replace(
        piece,
        offset=piece.offset + skipped * piece.strides[0] * item_bytes,
        shape=(last - first, *piece.shape[1:]),
        destination=(first - start, *piece.destination[1:]),
    )


def _allocate(shape: tuple[int, ...], dtype: torch.dtype, what: str) -> Tensor:
    try:
        return torch.empty(shape, dtype=dtype)
    except (RuntimeError, MemoryError) as error:
        size = math.prod(shape) * dtype.itemsize
        raise UnsupportedCheckpoint(f"{what} takes {size} bytes, more memory than there is") from error


def _fill(tensor: Tensor, piece: Piece, files: Files) -> None:
    """Read a piece into its place."""
    target = tensor[tuple(slice(d, d + n) for d, n in zip(piece.destination, piece.shape, strict=True))]
    if is_dense(piece) and target.is_contiguous():
        files.read_into(piece.file, piece.offset, bytes_of(target))
        return
    for block in blocks_of(piece, tensor.element_size(), MAX_BUFFER_BYTES):
        buffer = torch.empty(block.span, dtype=tensor.dtype)
        files.read_into(block.file, block.offset, bytes_of(buffer))
        place = tuple(slice(d, d + n) for d, n in zip(block.destination, block.shape, strict=True))
        tensor[place].copy_(buffer.as_strided(block.shape, block.strides))


def is_dense(piece: Piece) -> bool:
    """Whether its elements lie in order and without gaps; strides of dimensions of size 1 say nothing."""
    strides = contiguous_strides(piece.shape)
    return all(
        size == 1 or stride == dense
        for size, stride, dense in zip(piece.shape, piece.strides, strides, strict=True)
    )


def blocks_of(piece: Piece, item_bytes: int, limit: int) -> Iterator[Piece]:
    """The piece in parts that span at most `limit` bytes each, halved along the widest stride."""
    if piece.span * item_bytes <= limit or math.prod(piece.shape) == 1:
        yield piece
        return
    axis = max((stride, d) for d, stride in enumerate(piece.strides) if piece.shape[d] > 1)[1]
    half = piece.shape[axis] // 2
    for start, size in ((0, half), (half, piece.shape[axis] - half)):
        part = replace(
            piece,
            offset=piece.offset + start * piece.strides[axis] * item_bytes,
            shape=_with(piece.shape, axis, size),
            destination=_with(piece.destination, axis, piece.destination[axis] + start),
        )
        yield from blocks_of(part, item_bytes, limit)


def _with(values: tuple[int, ...], index: int, value: int) -> tuple[int, ...]:
    return (*values[:index], value, *values[index + 1 :])


def bytes_of(tensor: Tensor) -> memoryview:
    """The memory of a CPU tensor as bytes; of a copy when it is not contiguous."""
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data

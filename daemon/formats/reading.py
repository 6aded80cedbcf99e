"""From pieces to tensors: the one reader behind every format.

Bytes go straight from the file into the tensor's own memory where the layout allows it; strided pieces
pass through a buffer of their span. Only the rows that are asked for are read.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from foreshock.daemon.errors import CorruptCheckpoint, UnsupportedCheckpoint
from foreshock.daemon.formats.base import READABLE_DTYPES, Checkpoint, Piece, contiguous_strides
from foreshock.daemon.formats.files import Files

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
        UnsupportedCheckpoint: a dtype that cannot be measured (integers, packed 4-bit …).
        CorruptCheckpoint: the pieces do not cover the tensor.
        VanishedCheckpoint, UnreadableCheckpoint: see `Files.read_into`.
    """
    info = checkpoint.tensors[name]
    if info.dtype not in _DTYPES:
        raise UnsupportedCheckpoint(
            f"{checkpoint.root}: tensor {name!r:.80} is {info.dtype};"
            f" only {', '.join(READABLE_DTYPES)} can be measured"
        )
    start, stop, _ = (rows or slice(None)).indices(info.shape[0]) if info.shape else (0, 0, 1)
    shape = (max(stop - start, 0), *info.shape[1:]) if info.shape else ()
    tensor = torch.empty(shape, dtype=_DTYPES[info.dtype])
    filled = 0
    for piece in checkpoint.pieces(name):
        part = rows_of(piece, start, stop, tensor.element_size()) if info.shape else piece
        if part.span:
            _fill(tensor, part, files)
            filled += math.prod(part.shape)
    if filled != tensor.numel():
        raise CorruptCheckpoint(
            f"{checkpoint.root}: {filled} of {tensor.numel()} elements of {name!r:.80} are there"
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


def _fill(tensor: Tensor, piece: Piece, files: Files) -> None:
    """Read a piece into its place."""
    target = tensor[tuple(slice(d, d + n) for d, n in zip(piece.destination, piece.shape, strict=True))]
    if piece.strides == contiguous_strides(piece.shape) and target.is_contiguous():
        files.read_into(piece.file, piece.offset, bytes_of(target))
        return
    buffer = torch.empty(piece.span, dtype=tensor.dtype)
    files.read_into(piece.file, piece.offset, bytes_of(buffer))
    target.copy_(buffer.as_strided(piece.shape, piece.strides))


def bytes_of(tensor: Tensor) -> memoryview:
    """The memory of a CPU tensor as bytes; of a copy when it is not contiguous."""
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data

"""Tensors put together from parts in many `torch.save` files, one a rank: shards, fragments, partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from foreshock.daemon.errors import UnsupportedCheckpoint
from foreshock.daemon.formats.base import Piece, TensorInfo, checked_shape, checked_tensor_name
from foreshock.daemon.formats.chunk_cover import check_cover
from foreshock.daemon.formats.files import Files
from foreshock.daemon.formats.quoting import shown
from foreshock.daemon.formats.torch_zip import TensorRef, TorchFile, checked_tensor


@dataclass(frozen=True, slots=True)
class Fragment:
    """A block of a saved tensor, and its place in the whole one.

    Attributes:
        file: relative to the checkpoint's root.
        ref: the block, a view of the saved tensor (see `blocks`).
        destination: index of the block's first element in the whole tensor.
    """

    file: str
    ref: TensorRef
    destination: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class AssembledCheckpoint:
    """Tensors of which each is one or more fragments."""

    format: str
    source: Files
    opened: Mapping[str, TorchFile]
    tensors: Mapping[str, TensorInfo]
    fragments: Mapping[str, tuple[Fragment, ...]]
    files: tuple[str, ...]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def root(self) -> Path:
        """The checkpoint's directory."""
        return self.source.root

    def pieces(self, name: str) -> Iterator[Piece]:
        """One piece a fragment; the local headers of their storages are read here."""
        for fragment in self.fragments[name]:
            piece = self.opened[fragment.file].piece(self.source, fragment.ref)
            yield replace(piece, destination=fragment.destination)


def assembled_tensor(
    name: str,
    shape: tuple[int, ...],
    fragments: Iterable[Fragment],
    opened: Mapping[str, TorchFile],
    *,
    where: str,
) -> tuple[TensorInfo, tuple[Fragment, ...]]:
    """Check that fragments make up a tensor: sound each, of one dtype, without a hole or an overlap.

    Args:
        shape: of the whole tensor.
        opened: the fragments' files, by name.
        where: the checkpoint, for messages.

    Returns:
        The tensor's declaration, and the fragments that hold any element, in the order of their places.

    Raises:
        CorruptCheckpoint: they do not.
        UnsupportedCheckpoint: dtypes differ, or it is cut along too many dimensions.
    """
    shape = checked_shape(checked_tensor_name(name, where=where), shape, where=where)
    held = sorted((each for each in fragments if 0 not in each.ref.shape), key=lambda each: each.destination)
    for each in held:
        checked_tensor(opened[each.file], name, each.ref, where=f"{where}/{each.file}")
    dtypes = sorted({each.ref.dtype for each in held})
    if len(dtypes) > 1:
        raise UnsupportedCheckpoint(f"{where}: the parts of {shown(name)} are {' and '.join(dtypes)}")
    check_cover(name, shape, [(each.destination, each.ref.shape) for each in held], where=where)
    return TensorInfo(name, dtypes[0] if dtypes else "float32", shape), tuple(held)

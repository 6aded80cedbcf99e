"""DCP directories made by hand from torch's own metadata classes: chunks of any shape, in any file."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

Index = tuple[int, ...]


def saved(content: Any) -> bytes:
    """`torch.save` into memory, as the writers of DCP do for every chunk."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def grid(shape: Index, pieces: Index) -> Iterator[tuple[Index, Index]]:
    """Boxes (start, shape) that cut every dimension like `torch.chunk`, empty ones included."""
    if not shape:
        yield (), ()
        return
    step = -(-shape[0] // pieces[0])
    for part in range(pieces[0]):
        first = min(part * step, shape[0])
        rows = min(first + step, shape[0]) - first
        for start, size in grid(shape[1:], pieces[1:]):
            yield (first, *start), (rows, *size)


@dataclass(slots=True)
class ChunkWriter:
    """Collects chunks, then writes the shard files and the index.

    Attributes:
        num_files: chunks are dealt out to so many shard files.
    """

    num_files: int = 2
    shards: dict[str, bytearray] = field(default_factory=dict)
    declared: dict[str, Any] = field(default_factory=dict)
    storage: dict[MetadataIndex, _StorageInfo] = field(default_factory=dict)

    def add(self, name: str, tensor: Tensor, pieces: Index) -> None:
        """A tensor, cut into a grid."""
        chunks = []
        for start, shape in grid(tuple(tensor.shape), pieces):
            chunks.append(ChunkStorageMetadata(torch.Size(start), torch.Size(shape)))
            if 0 in shape:
                continue
            where = tuple(slice(first, first + size) for first, size in zip(start, shape, strict=True))
            self._store(MetadataIndex(name, torch.Size(start)), saved(tensor[where].clone()))
        properties = TensorProperties(dtype=tensor.dtype)
        self.declared[name] = TensorStorageMetadata(properties, torch.Size(tensor.shape), chunks)

    def add_object(self, name: str, value: Any) -> None:
        """An object that is no tensor."""
        self.declared[name] = BytesStorageMetadata()
        self._store(MetadataIndex(name), saved(value))

    def _store(self, index: MetadataIndex, data: bytes) -> None:
        file = f"__{len(self.storage) % self.num_files}_0.distcp"
        shard = self.shards.setdefault(file, bytearray())
        self.storage[index] = _StorageInfo(file, len(shard), len(data))
        shard += data

    def metadata(self) -> Metadata:
        """The index as torch has it."""
        return Metadata(self.declared, None, self.storage)

    def write(self, directory: Path) -> Path:
        """The checkpoint."""
        directory.mkdir(parents=True, exist_ok=True)
        for file, content in self.shards.items():
            (directory / file).write_bytes(content)
        (directory / ".metadata").write_bytes(pickle.dumps(self.metadata()))
        return directory

"""PyTorch zip files: one `.pt`, `.pth`, `.bin`, `.ckpt`, or shards behind `pytorch_model.bin.index.json`.

Tensors are named by their path in the saved object (`model.transformer.h.0.attn.c_attn.weight`); numbers
and strings beside them (`iter_num`, `global_step`, `model_args`) become the checkpoint's metadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foreshock.daemon.errors import IncompleteCheckpoint, UnsupportedCheckpoint
from foreshock.daemon.formats.base import Checkpoint, Location, Piece, TensorInfo
from foreshock.daemon.formats.files import Files
from foreshock.daemon.formats.nested_values import plain_values, walk_tensors
from foreshock.daemon.formats.quoting import shown
from foreshock.daemon.formats.shard_index import merge_shards, read_shard_index
from foreshock.daemon.formats.torch_zip import (
    Refused,
    TensorRef,
    TorchFile,
    checked_tensor,
    read_torch_file,
)
from foreshock.daemon.formats.tree import at_root

INDEX = "pytorch_model.bin.index.json"
SINGLE = "pytorch_model.bin"
SUFFIXES = (".pt", ".pth", ".bin", ".ckpt")
NOT_WEIGHTS = frozenset(
    {
        "training_args.bin",
        "optimizer.pt",
        "optimizer.bin",
        "scheduler.pt",
        "scheduler.bin",
        "scaler.pt",
        "sampler.bin",
    }
)
"""What trainers save beside the weights under the same suffixes."""

MAX_NOTES = 5


@dataclass(frozen=True, slots=True)
class TorchCheckpoint:
    """Tensors of one or more archives."""

    format: str
    source: Files
    opened: Mapping[str, TorchFile]
    tensors: Mapping[str, TensorInfo]
    places: Mapping[str, tuple[str, TensorRef]]
    metadata: Mapping[str, Any]
    files: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def root(self) -> Path:
        """The directory that file names are relative to."""
        return self.source.root

    def pieces(self, name: str) -> Iterator[Piece]:
        """One strided piece; the local header of its storage is read here."""
        file, tensor = self.places[name]
        yield self.opened[file].piece(self.source, tensor)


@dataclass(frozen=True, slots=True)
class TorchShard:
    """One file's tensors, and by path why others cannot be read."""

    file: TorchFile
    tensors: Mapping[str, TensorInfo]
    refs: Mapping[str, TensorRef]
    refused: Mapping[str, str]


def read_torch_shard(files: Files, name: str) -> TorchShard:
    """Open one archive and check every tensor in it.

    Raises:
        UnsupportedCheckpoint: it holds no tensor that can be read.
        IncompleteCheckpoint, CorruptCheckpoint: see `read_torch_file` and `checked_tensor`.
    """
    where = str(files.root / name)
    opened = read_torch_file(files, name)
    refs: dict[str, TensorRef] = {}
    tensors: dict[str, TensorInfo] = {}
    refused: dict[str, str] = {}
    for path, tensor in walk_tensors(opened.content, where=where):
        if path in refs or path in refused:
            raise UnsupportedCheckpoint(f"{where}: two tensors have the path {shown(path)}")
        if isinstance(tensor, Refused):
            refused[path] = f"{path}: {tensor.reason}"
            continue
        refs[path] = tensor
        try:
            tensors[path] = checked_tensor(opened, path, tensor, where=where)
        except UnsupportedCheckpoint as error:
            refused[path] = str(error)
    if not tensors:
        reason = next(iter(refused.values()), "it holds no tensor")
        raise UnsupportedCheckpoint(f"{where}: no weights to read: {reason}")
    return TorchShard(opened, dict(sorted(tensors.items())), refs, refused)


def listed_reasons(refused: Iterable[str]) -> tuple[str, ...]:
    """The first few reasons, and how many there are besides."""
    reasons = sorted(refused)
    rest = len(reasons) - MAX_NOTES
    more = (f"and {rest} more tensors that cannot be read",) if rest > 0 else ()
    return (*reasons[:MAX_NOTES], *more)


@dataclass(frozen=True, slots=True)
class TorchFiles:
    """`torch.save` files."""

    name: str = "torch.save"
    looks_for: str = f"{INDEX}, {SINGLE}, or a single file ending in {', '.join(SUFFIXES)}"

    def claims(self, names: frozenset[str]) -> str:
        """An index, the usual name, or one weight-like file."""
        if INDEX in names:
            return INDEX
        candidates = _weight_files(names)
        return SINGLE if SINGLE in candidates else next(iter(candidates), "")

    def open(self, location: Location) -> Checkpoint:
        """Read the directory and the pickle of every archive."""
        if location.entry not in {"", INDEX}:
            return self._single(location, location.entry)
        names = frozenset(location.names())
        if INDEX in names:
            return self._sharded(location, names)
        candidates = _weight_files(names)
        if SINGLE in candidates:
            return self._single(location, SINGLE)
        if any("-of-" in name for name in candidates):
            raise IncompleteCheckpoint(
                f"{location.path}: {len(candidates)} shards, but {INDEX} is not there yet"
            )
        if len(candidates) == 1:
            return self._single(location, candidates[0])
        raise UnsupportedCheckpoint(
            f"{location.path}: {len(candidates)} files could hold the weights ({', '.join(candidates[:5])});"
            " name the one that is meant"
        )

    def _single(self, location: Location, entry: str) -> Checkpoint:
        file = location.at(entry)
        shard = read_torch_shard(location.files, file)
        places = {path: (file, shard.refs[path]) for path in shard.tensors}
        metadata = plain_values(shard.file.content)
        notes = listed_reasons(shard.refused.values())
        opened = {file: shard.file}
        return TorchCheckpoint(
            self.name, location.files, opened, shard.tensors, places, metadata, (file,), notes
        )

    def _sharded(self, location: Location, names: frozenset[str]) -> Checkpoint:
        files, index = location.files, read_shard_index(location.files, location.at(INDEX))
        shards = {name: read_torch_shard(files, location.at(name)) for name in index.present(names)}
        refused = {path: reason for shard in shards.values() for path, reason in shard.refused.items()}
        tensors, notes = merge_shards(
            index.without(refused),
            {name: shard.tensors for name, shard in shards.items()},
            str(location.path),
        )
        holders = {path: index.weight_map[path] for path in tensors}
        places = {path: (location.at(name), shards[name].refs[path]) for path, name in holders.items()}
        opened = {location.at(name): shard.file for name, shard in shards.items()}
        notes = (*notes, *listed_reasons(refused.values()))
        read = tuple(map(location.at, (INDEX, *shards)))
        return TorchCheckpoint(self.name, files, opened, tensors, places, {}, read, notes)


def _weight_files(names: frozenset[str]) -> tuple[str, ...]:
    return tuple(
        sorted(
            name
            for name in at_root(names)
            if name.endswith(SUFFIXES)
            and name not in NOT_WEIGHTS
            and not name.startswith((".", "rng_state", "random_states"))
        )
    )

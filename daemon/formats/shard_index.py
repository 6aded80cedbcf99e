"""`*.index.json` of Hugging Face: which shard file holds which tensor."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from foreshock.daemon.errors import CorruptCheckpoint, IncompleteCheckpoint
from foreshock.daemon.formats.base import TensorInfo
from foreshock.daemon.formats.files import Files, checked_name

MAX_INDEX_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class ShardIndex:
    """The file of every tensor.

    Attributes:
        path: of the index, for messages.
    """

    path: str
    weight_map: Mapping[str, str]

    def present(self, names: Iterable[str]) -> tuple[str, ...]:
        """The shard files, sorted; `IncompleteCheckpoint` unless all of them are in the directory."""
        wanted = set(self.weight_map.values())
        missing = sorted(wanted - set(names))
        if missing:
            raise IncompleteCheckpoint(
                f"{self.path}: {len(missing)} of {len(wanted)} shards are not there, first {missing[0]}"
            )
        return tuple(sorted(wanted))


def read_shard_index(files: Files, name: str) -> ShardIndex:
    """Read and check an index.

    Raises:
        IncompleteCheckpoint: an empty or cut file: it is being written.
        CorruptCheckpoint: no `weight_map`, or names that lead outside of the checkpoint.
    """
    where = str(files.root / name)
    raw = files.read_whole(name, limit=MAX_INDEX_BYTES)
    if not raw.rstrip().endswith(b"}"):
        raise IncompleteCheckpoint(f"{where}: the index is cut; it is still being written")
    try:
        weight_map = json.loads(raw.decode("utf-8"))["weight_map"]
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise CorruptCheckpoint(f"{where}: no sound weight_map: {error}") from error
    if not isinstance(weight_map, dict) or not weight_map:
        raise CorruptCheckpoint(f"{where}: weight_map is not a mapping of tensors to files")
    for file in set(map(str, weight_map.values())):
        checked_name(file, where=where)
    return ShardIndex(where, {str(tensor): str(file) for tensor, file in weight_map.items()})


def merge_shards(
    index: ShardIndex, shards: Mapping[str, Mapping[str, TensorInfo]], root: str
) -> tuple[dict[str, TensorInfo], tuple[str, ...]]:
    """The tensors that the index names, sorted, and notes on what only the shards name.

    Raises:
        CorruptCheckpoint: a shard lacks a tensor that the index says it holds.
    """
    tensors: dict[str, TensorInfo] = {}
    for name, file in sorted(index.weight_map.items()):
        if name not in shards[file]:
            raise CorruptCheckpoint(f"{root}: the index says that {file} holds {name!r:.80}; it does not")
        tensors[name] = shards[file][name]
    unnamed = sum(1 for shard in shards.values() for name in shard if name not in tensors)
    notes = (f"{unnamed} tensors in the shards are not named by the index",) if unnamed else ()
    return tensors, notes

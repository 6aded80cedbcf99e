"""`*.index.json` of Hugging Face: which shard file holds which tensor."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace

from foreshock.daemon.errors import CorruptCheckpoint, IncompleteCheckpoint
from foreshock.daemon.formats.base import TensorInfo
from foreshock.daemon.formats.files import Files, checked_name
from foreshock.daemon.formats.quoting import shown
from foreshock.daemon.formats.strict_json import is_cut, parse_object

MAX_INDEX_BYTES = 100_000_000


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
                f"{self.path}: {len(missing)} of {len(wanted)} shards are not there,"
                f" first {shown(missing[0])}"
            )
        return tuple(sorted(wanted))

    def without(self, names: Container[str]) -> ShardIndex:
        """The same without these tensors."""
        return replace(self, weight_map={n: f for n, f in self.weight_map.items() if n not in names})


def read_shard_index(files: Files, name: str) -> ShardIndex:
    """Read and check an index.

    Raises:
        IncompleteCheckpoint: an empty or cut file: it is being written.
        CorruptCheckpoint: no `weight_map`, or names that lead outside of the checkpoint.
    """
    where = str(files.root / name)
    raw = files.read_whole(name, limit=MAX_INDEX_BYTES)
    try:
        weight_map = parse_object(raw, where=where).get("weight_map")
    except CorruptCheckpoint as error:
        if is_cut(raw):
            raise IncompleteCheckpoint(f"{where}: it is cut; it is still being written") from error
        raise
    if not isinstance(weight_map, dict) or not weight_map:
        raise CorruptCheckpoint(f"{where}: weight_map is not a mapping of tensors to files")
    if not all(isinstance(file, str) for file in weight_map.values()):
        raise CorruptCheckpoint(f"{where}: weight_map names something that is no file")
    for file in set(weight_map.values()):
        checked_name(file, where=where)
    return ShardIndex(where, weight_map)


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
            raise CorruptCheckpoint(f"{root}: the index says that {file} holds {shown(name)}; it does not")
        tensors[name] = shards[file][name]
    unnamed = sum(1 for shard in shards.values() for name in shard if name not in tensors)
    notes = (f"{unnamed} tensors in the shards are not named by the index",) if unnamed else ()
    return tensors, notes

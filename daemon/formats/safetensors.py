"""safetensors: 8 bytes of header length, a JSON header with the byte range of every tensor, the data.

The header is checked whole, once: ranges must cover the data without a hole, an overlap or a rest, and
sizes must agree with shapes. Afterwards nothing can find out that the file is bad. A directory holds one
such file, or several behind `model.safetensors.index.json`; where both are there, the index counts.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from foreshock.daemon.errors import CorruptCheckpoint, IncompleteCheckpoint, UnsupportedCheckpoint
from foreshock.daemon.formats.base import (
    Checkpoint,
    Location,
    MappedCheckpoint,
    Piece,
    TensorInfo,
    are_counts,
    checked_shape,
    checked_tensor_name,
    contiguous_strides,
)
from foreshock.daemon.formats.files import Files
from foreshock.daemon.formats.quoting import shown
from foreshock.daemon.formats.shard_index import merge_shards, read_shard_index
from foreshock.daemon.formats.strict_json import parse_object
from foreshock.daemon.formats.tree import at_root

MAX_HEADER_BYTES = 100_000_000
"""The limit of the safetensors library itself."""

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"

_DTYPES: Mapping[str, tuple[str, int]] = {
    "F64": ("float64", 64),
    "F32": ("float32", 32),
    "F16": ("float16", 16),
    "BF16": ("bfloat16", 16),
    "F8_E4M3": ("float8_e4m3fn", 8),
    "F8_E5M2": ("float8_e5m2", 8),
    "F8_E4M3FNUZ": ("float8_e4m3fnuz", 8),
    "F8_E5M2FNUZ": ("float8_e5m2fnuz", 8),
    "F8_E8M0": ("float8_e8m0fnu", 8),
    "F6_E2M3": ("float6_e2m3fn", 6),
    "F6_E3M2": ("float6_e3m2fn", 6),
    "F4": ("float4_e2m1fn", 4),
    "C64": ("complex64", 64),
    "I64": ("int64", 64),
    "U64": ("uint64", 64),
    "I32": ("int32", 32),
    "U32": ("uint32", 32),
    "I16": ("int16", 16),
    "U16": ("uint16", 16),
    "I8": ("int8", 8),
    "U8": ("uint8", 8),
    "BOOL": ("bool", 8),
}
"""The format's names with ours, and bits per element."""


@dataclass(frozen=True, slots=True)
class SafetensorsFile:
    """One file's checked header."""

    tensors: Mapping[str, TensorInfo]
    layout: Mapping[str, tuple[Piece, ...]]
    metadata: Mapping[str, str]


def read_safetensors_file(files: Files, file: str) -> SafetensorsFile:
    """Read and check a header; data is not touched.

    Raises:
        IncompleteCheckpoint: the file is shorter than its header says.
        CorruptCheckpoint: anything else that disagrees.
    """
    where = str(files.root / file)
    size = files.state(file).size
    if size < 8:
        raise IncompleteCheckpoint(f"{where}: {size} bytes; the length of the header alone takes 8")
    (length,) = struct.unpack("<Q", files.read(file, 0, 8))
    if length == 0:
        raise IncompleteCheckpoint(f"{where}: begins with zeros; allocated, but not yet written")
    if length > MAX_HEADER_BYTES or length < 2:
        raise CorruptCheckpoint(f"{where}: claims a header of {length} bytes")
    if 8 + length > size:
        raise IncompleteCheckpoint(f"{where}: {size} bytes, its header alone needs {8 + length}")
    header = _parse(files.read(file, 8, length), where)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise CorruptCheckpoint(f"{where}: __metadata__ is not a mapping of strings")
    tensors: dict[str, TensorInfo] = {}
    layout: dict[str, tuple[Piece, ...]] = {}
    ranges: list[tuple[int, int, str]] = []
    for name in sorted(header):
        info, begin, end = _tensor(name, header[name], where)
        tensors[name] = info
        layout[name] = (_piece(file, 8 + length + begin, info),)
        ranges.append((begin, end, name))
    _check_cover(ranges, size - 8 - length, where)
    return SafetensorsFile(tensors, layout, metadata)


def _parse(header: bytearray, where: str) -> dict[str, Any]:
    if header[:1] != b"{":
        raise CorruptCheckpoint(f"{where}: the header does not start with '{{'")
    return parse_object(header, where=f"{where}: header")


def _tensor(name: str, entry: Any, where: str) -> tuple[TensorInfo, int, int]:
    checked_tensor_name(name, where=where)
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise CorruptCheckpoint(f"{where}: the entry of tensor {shown(name)} is malformed")
    code, offsets = entry["dtype"], entry["data_offsets"]
    if not isinstance(code, str) or code not in _DTYPES:
        raise CorruptCheckpoint(
            f"{where}: tensor {shown(name)} has the unknown dtype {shown(code)}: a writer's fault"
        )
    dtype, bits = _DTYPES[code]
    info = TensorInfo(name, dtype, checked_shape(name, entry["shape"], where=where))
    if not isinstance(offsets, list) or len(offsets) != 2 or not are_counts(offsets):
        raise CorruptCheckpoint(f"{where}: tensor {shown(name)} has malformed offsets {shown(offsets)}")
    begin, end = offsets
    if (end - begin) * 8 != info.num_elements * bits:
        raise CorruptCheckpoint(
            f"{where}: tensor {shown(name)} of shape {list(info.shape)} and dtype {code}"
            f" cannot lie at bytes {begin} to {end}"
        )
    return info, begin, end


def _piece(file: str, offset: int, info: TensorInfo) -> Piece:
    return Piece(file, offset, info.shape, contiguous_strides(info.shape), (0,) * len(info.shape))


def _check_cover(ranges: list[tuple[int, int, str]], data_bytes: int, where: str) -> None:
    """The ranges follow each other without hole or overlap up to the end of the file."""
    position = 0
    for begin, end, name in sorted(ranges):
        if begin != position:
            kind = "overlaps the one before" if begin < position else "leaves a hole before it"
            raise CorruptCheckpoint(f"{where}: tensor {shown(name)} at bytes {begin} to {end} {kind}")
        position = end
    if position > data_bytes:
        raise IncompleteCheckpoint(f"{where}: {data_bytes} bytes of data, its header needs {position}")
    if position < data_bytes:
        raise CorruptCheckpoint(f"{where}: {data_bytes - position} bytes follow the last tensor")


@dataclass(frozen=True, slots=True)
class Safetensors:
    """`model.safetensors`, or shards behind `model.safetensors.index.json`."""

    name: str = "safetensors"
    looks_for: str = f"{INDEX}, {SINGLE}, or a single *.safetensors file"

    def claims(self, names: frozenset[str]) -> str:
        """An index, the usual name, or any safetensors file."""
        if INDEX in names:
            return INDEX
        candidates = _weight_files(names)
        return SINGLE if SINGLE in candidates else next(iter(candidates), "")

    def open(self, location: Location) -> Checkpoint:
        """Check every shard's header, and the index against them."""
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
            f"{location.path}: {len(candidates)} safetensors files and no {INDEX}: name the one that is meant"
        )

    def _single(self, location: Location, entry: str) -> Checkpoint:
        file = location.at(entry)
        content = read_safetensors_file(location.files, file)
        return MappedCheckpoint(
            self.name, location.files.root, content.tensors, (file,), content.layout, content.metadata
        )

    def _sharded(self, location: Location, names: frozenset[str]) -> Checkpoint:
        files = location.files
        index = read_shard_index(files, location.at(INDEX))
        shards = {file: read_safetensors_file(files, location.at(file)) for file in index.present(names)}
        tensors, notes = merge_shards(
            index, {file: content.tensors for file, content in shards.items()}, str(location.path)
        )
        strays = [name for name in _weight_files(names) if name not in shards]
        if strays:
            notes = (*notes, f"not named by {INDEX}, ignored: {', '.join(strays[:5])}")
        layout = {name: shards[index.weight_map[name]].layout[name] for name in tensors}
        read = tuple(map(location.at, (INDEX, *shards)))
        return MappedCheckpoint(self.name, files.root, tensors, read, layout, {}, notes)


def _weight_files(names: frozenset[str]) -> tuple[str, ...]:
    """Not those with a dot in front: writers use such names until a file is whole."""
    return tuple(sorted(n for n in at_root(names) if n.endswith(".safetensors") and not n.startswith(".")))

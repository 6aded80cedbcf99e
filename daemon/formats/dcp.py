"""PyTorch Distributed Checkpoint: a pickled index `.metadata` over chunks in `*.distcp` files.

Every chunk of a tensor is a `torch.save` archive of its own at an offset of some rank's file; the index
says where, and which part of the whole tensor it is. Chunks of FSDP, tensor parallelism and both together
are all placed by their offsets alone. The index is read as inert data (torch reads it with plain pickle).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from foreshock.daemon.errors import CorruptCheckpoint, IncompleteCheckpoint, UnsupportedCheckpoint
from foreshock.daemon.formats.base import (
    MAX_NAME_BYTES,
    READABLE_DTYPES,
    Checkpoint,
    Location,
    Piece,
    TensorInfo,
    checked_shape,
)
from foreshock.daemon.formats.files import Files, checked_name
from foreshock.daemon.formats.inert_pickle import MAX_PICKLE_BYTES, Global, Stub, load
from foreshock.daemon.formats.torch_zip import (
    REDUCERS,
    TensorRef,
    checked_tensor,
    plain_values,
    read_torch_file,
)

METADATA = ".metadata"
STEP_KEYS = frozenset({"step", "global_step", "iteration", "iter_num"})
MAX_STEP_ENTRY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a tensor, or a whole pickled object, at a byte range of a file.

    Attributes:
        start: index of the chunk's first element in the whole tensor; empty for objects.
        shape: of the chunk.
    """

    file: str
    offset: int
    length: int
    start: tuple[int, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DistributedCheckpoint:
    """An opened index."""

    format: str
    source: Files
    tensors: Mapping[str, TensorInfo]
    chunks: Mapping[str, tuple[Chunk, ...]]
    metadata: Mapping[str, Any]
    files: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def root(self) -> Path:
        """The checkpoint's directory."""
        return self.source.root

    def pieces(self, name: str) -> Iterator[Piece]:
        """One piece a chunk; the chunk's own archive header is read here."""
        info = self.tensors[name]
        for chunk in self.chunks[name]:
            if 0 in chunk.shape:
                continue
            where = f"{self.root / chunk.file} at byte {chunk.offset}"
            file = read_torch_file(self.source, chunk.file, start=chunk.offset, length=chunk.length)
            if not isinstance(file.content, TensorRef):
                raise CorruptCheckpoint(f"{where}: the chunk of {name!r:.80} is not a tensor")
            held = checked_tensor(file, name, file.content, where=where)
            if held.shape != chunk.shape or held.dtype != info.dtype:
                raise CorruptCheckpoint(
                    f"{where}: the chunk of {name!r:.80} is {held.dtype} {held.shape},"
                    f" the index says {info.dtype} {chunk.shape}"
                )
            yield replace(file.piece(self.source, name, file.content), destination=chunk.start)


@dataclass(frozen=True, slots=True)
class TorchDistributedCheckpoint:
    """`torch.distributed.checkpoint` directories."""

    name: str = "torch.distributed.checkpoint"
    looks_for: str = f"{METADATA} beside *.distcp files"

    def claims(self, names: frozenset[str]) -> bool:
        """The index, or chunks that still wait for it."""
        return METADATA in names or any(name.endswith(".distcp") for name in names)

    def open(self, location: Location) -> Checkpoint:
        """Read the index, and check that chunks cover tensors and lie within the files."""
        files = location.files
        where = str(files.root / METADATA)
        if METADATA not in files.names():
            raise IncompleteCheckpoint(f"{where}: not there yet; it is written last")
        index = load(files.read_whole(METADATA, limit=MAX_PICKLE_BYTES), where=where, reducers=REDUCERS)
        chunks = _locate(index, where)
        names = _check_files(files, chunks)
        tensors: dict[str, TensorInfo] = {}
        placed: dict[str, tuple[Chunk, ...]] = {}
        for name, declared in sorted(_mapping(index, "state_dict_metadata", where).items()):
            if isinstance(declared, Stub) and declared.path.endswith(".TensorStorageMetadata"):
                info = _declared_tensor(name, declared, where)
                tensors[name] = info
                placed[name] = _placed(info, declared, chunks.get(name, {}), where)
        metadata = _own_step(files, chunks, set(tensors))
        return DistributedCheckpoint(self.name, files, tensors, placed, metadata, (METADATA, *names))


def _mapping(index: Any, attribute: str, where: str) -> dict[Any, Any]:
    mapping = index.attribute(attribute) if isinstance(index, Stub) else None
    if not isinstance(mapping, dict):
        raise CorruptCheckpoint(f"{where}: no {attribute}; this is not a DCP index")
    return mapping


def _locate(index: Any, where: str) -> dict[str, dict[tuple[int, ...], Chunk]]:
    """By tensor name and start, where each chunk lies."""
    located: dict[str, dict[tuple[int, ...], Chunk]] = {}
    for key, info in _mapping(index, "storage_data", where).items():
        if not isinstance(key, Stub) or not isinstance(info, Stub):
            raise CorruptCheckpoint(f"{where}: storage_data holds something that is no chunk")
        name, start = key.attribute("fqn"), key.attribute("offset")
        offset, length = info.attribute("offset"), info.attribute("length")
        if not isinstance(name, str) or len(name) > MAX_NAME_BYTES or not _counts((offset, length)):
            raise CorruptCheckpoint(f"{where}: a chunk of {name!r:.80} has no sound place")
        if info.attribute("transform_descriptors"):
            raise UnsupportedCheckpoint(
                f"{where}: chunks are stored through a transformation ({name!r:.80}), such as compression;"
                " save without storage extensions"
            )
        file = checked_name(info.attribute("relative_path"), where=where)
        at = tuple(start) if _counts(start) else ()
        located.setdefault(name, {})[at] = Chunk(file, offset, length, at, ())
    return located


def _counts(values: Any) -> bool:
    return isinstance(values, tuple | list) and all(type(value) is int and value >= 0 for value in values)


def _check_files(files: Files, chunks: Mapping[str, Mapping[tuple[int, ...], Chunk]]) -> tuple[str, ...]:
    """Names of all chunk files, once each is long enough for every chunk in it."""
    needed: dict[str, int] = {}
    for parts in chunks.values():
        for chunk in parts.values():
            needed[chunk.file] = max(needed.get(chunk.file, 0), chunk.offset + chunk.length)
    for name, size in sorted(needed.items()):
        if not files.exists(name):
            raise IncompleteCheckpoint(f"{files.root / name}: not there, though {METADATA} names it")
        actual = files.state(name).size
        if actual < size:
            raise IncompleteCheckpoint(f"{files.root / name}: {actual} bytes, {METADATA} needs {size}")
    return tuple(sorted(needed))


def _declared_tensor(name: Any, declared: Stub, where: str) -> TensorInfo:
    properties = declared.attribute("properties")
    state = properties.state if isinstance(properties, Stub) else None
    dtype = state.get("dtype") if isinstance(state, dict) else state[0] if isinstance(state, tuple) else None
    if not isinstance(name, str) or not isinstance(dtype, Global):
        raise CorruptCheckpoint(f"{where}: tensor {name!r:.80} has no dtype")
    return TensorInfo(name, dtype.name, checked_shape(name, declared.attribute("size"), where=where))


def _placed(
    info: TensorInfo, declared: Stub, located: Mapping[tuple[int, ...], Chunk], where: str
) -> tuple[Chunk, ...]:
    """The tensor's chunks with their shapes; together they cover it exactly once.

    Raises:
        CorruptCheckpoint: a hole, an overlap, or a chunk that lies nowhere.
    """
    placed: list[Chunk] = []
    for part in declared.attribute("chunks") or ():
        start: Any = part.attribute("offsets") if isinstance(part, Stub) else None
        shape: Any = part.attribute("sizes") if isinstance(part, Stub) else None
        if not _inside(start, shape, info.shape):
            raise CorruptCheckpoint(f"{where}: a chunk of {info.name!r:.80} lies outside of {info.shape}")
        if 0 in shape:
            continue
        chunk = located.get(tuple(start))
        if chunk is None:
            raise CorruptCheckpoint(f"{where}: the chunk of {info.name!r:.80} at {tuple(start)} lies nowhere")
        placed.append(replace(chunk, shape=tuple(shape)))
    covered = sum(math.prod(chunk.shape) for chunk in placed)
    if covered != info.num_elements or _overlap(placed):
        raise CorruptCheckpoint(
            f"{where}: the chunks of {info.name!r:.80} hold {covered} elements of {info.num_elements},"
            " with a hole or an overlap"
        )
    if info.dtype not in READABLE_DTYPES:
        return ()
    return tuple(sorted(placed, key=lambda chunk: chunk.start))


def _inside(start: Any, shape: Any, whole: tuple[int, ...]) -> bool:
    if not _counts(start) or not _counts(shape):
        return False
    return len(start) == len(shape) == len(whole) and all(
        first + size <= limit for first, size, limit in zip(start, shape, whole, strict=True)
    )


def _overlap(chunks: list[Chunk]) -> bool:
    """Whether two chunks share an element, by a sweep over the first dimension."""
    active: list[Chunk] = []
    for chunk in sorted(chunks, key=lambda chunk: chunk.start):
        if not chunk.shape:
            return len(chunks) > 1
        active = [other for other in active if other.start[0] + other.shape[0] > chunk.start[0]]
        if any(_intersect(chunk, other) for other in active):
            return True
        active.append(chunk)
    return False


def _intersect(one: Chunk, other: Chunk) -> bool:
    return all(
        a < b + m and b < a + n
        for a, n, b, m in zip(one.start, one.shape, other.start, other.shape, strict=True)
    )


def _own_step(
    files: Files, chunks: Mapping[str, Mapping[tuple[int, ...], Chunk]], tensors: set[str]
) -> dict[str, Any]:
    """The step that the trainer saved as an object of its own (`step`, `train_state.step` …)."""
    found: dict[str, Any] = {}
    for name, parts in sorted(chunks.items()):
        key = name.rsplit(".", 1)[-1]
        if key in STEP_KEYS and name not in tensors and key not in found:
            chunk = next(iter(parts.values()))
            if chunk.length <= MAX_STEP_ENTRY_BYTES:
                file = read_torch_file(files, chunk.file, start=chunk.offset, length=chunk.length)
                found.update(plain_values({key: file.content}))
    return found

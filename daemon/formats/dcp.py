"""PyTorch Distributed Checkpoint: a pickled index `.metadata` over chunks in `*.distcp` files.

Every chunk of a tensor is a `torch.save` archive of its own at an offset of some rank's file; the index
says where, and which part of the whole tensor it is. Chunks of FSDP, tensor parallelism and both together
are all placed by their offsets alone. The index is read as inert data (torch reads it with plain pickle).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from pickle import STOP
from typing import Any

from foreshock.daemon.errors import (
    CorruptCheckpoint,
    IncompleteCheckpoint,
    UnsupportedCheckpoint,
    VanishedCheckpoint,
)
from foreshock.daemon.formats.base import (
    MAX_DTYPE_CHARACTERS,
    READABLE_DTYPES,
    Checkpoint,
    Location,
    Piece,
    TensorInfo,
    are_counts,
    checked_shape,
    checked_tensor_name,
)
from foreshock.daemon.formats.chunk_cover import check_cover, is_inside, text_of
from foreshock.daemon.formats.files import Files, checked_name
from foreshock.daemon.formats.inert_pickle import MAX_PICKLE_BYTES, load
from foreshock.daemon.formats.inert_values import Global, Stub
from foreshock.daemon.formats.nested_values import plain_values
from foreshock.daemon.formats.quoting import shown
from foreshock.daemon.formats.torch_zip import REDUCERS, TensorRef, checked_tensor, read_torch_file
from foreshock.daemon.formats.tree import at_root

METADATA = ".metadata"
STEP_KEYS = frozenset({"step", "global_step", "iteration", "iter_num"})
MAX_STEP_ENTRY_BYTES = 64 << 10
MEGATRON_OBJECTS = "common_state/"
"""What only Megatron-Core saves, since 0.19; `megatron_core` reads such checkpoints once they are whole."""

Located = Mapping[str, Mapping[str, "Chunk"]]
"""Chunks by the name of what they are a part of, then by their first index as text."""


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
    """An opened index.

    Attributes:
        objects: by name, where what is no tensor lies.
    """

    format: str
    source: Files
    tensors: Mapping[str, TensorInfo]
    chunks: Mapping[str, tuple[Chunk, ...]]
    objects: Mapping[str, Chunk]
    metadata: Mapping[str, Any]
    files: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def root(self) -> Path:
        """The checkpoint's directory."""
        return self.source.root

    def read_object(self, name: str) -> Any:
        """What was saved under a name that is no tensor's, inert (see `inert_pickle`).

        Raises:
            KeyError: no object has that name.
            CorruptCheckpoint: it is no archive that `torch.save` wrote.
        """
        return _read_object(self.source, self.objects[name])

    def pieces(self, name: str) -> Iterator[Piece]:
        """One piece a chunk; the chunk's own archive header is read here."""
        return self.pieces_of(name, self.chunks[name])

    def pieces_of(self, name: str, chunks: Iterable[Chunk]) -> Iterator[Piece]:
        """The pieces of some of a tensor's chunks: of one layer, where all layers are one tensor."""
        info = self.tensors[name]
        for chunk in chunks:
            if 0 in chunk.shape:
                continue
            where = f"{self.root / chunk.file} at byte {chunk.offset}"
            file = read_torch_file(self.source, chunk.file, start=chunk.offset, length=chunk.length)
            if not isinstance(file.content, TensorRef):
                raise CorruptCheckpoint(f"{where}: the chunk of {shown(name)} is not a tensor")
            held = checked_tensor(file, name, file.content, where=where)
            if held.shape != chunk.shape or held.dtype != info.dtype:
                raise CorruptCheckpoint(
                    f"{where}: the chunk of {shown(name)} is {held.dtype} {held.shape},"
                    f" the index says {info.dtype} {chunk.shape}"
                )
            yield replace(file.piece(self.source, file.content), destination=chunk.start)


@dataclass(frozen=True, slots=True)
class TorchDistributedCheckpoint:
    """`torch.distributed.checkpoint` directories."""

    name: str = "torch.distributed.checkpoint"
    looks_for: str = f"{METADATA} beside *.distcp files"

    def claims(self, names: frozenset[str]) -> str:
        """The index, or chunks that still wait for it."""
        if METADATA in names:
            return METADATA
        return next((name for name in sorted(at_root(names)) if name.endswith(".distcp")), "")

    def open(self, location: Location) -> Checkpoint:
        """Read the index, and check that chunks cover tensors and lie within the files."""
        checkpoint = read_distributed(location, self.name)
        if any(name.startswith(MEGATRON_OBJECTS) for name in checkpoint.objects):
            raise IncompleteCheckpoint(f"{location.path}: Megatron-Core has yet to write its metadata.json")
        return checkpoint


def read_distributed(location: Location, format_name: str) -> DistributedCheckpoint:
    """Read an index and check it; for formats that keep the checkpoint in a folder or give it other names.

    Raises:
        IncompleteCheckpoint: the index is not there, or names what is not there.
        CorruptCheckpoint, UnsupportedCheckpoint: see `Format.open`.
    """
    files, index_file = location.files, location.at(METADATA)
    where = str(files.root / index_file)
    if METADATA not in location.names():
        raise IncompleteCheckpoint(f"{where}: not there yet; it is written last")
    pickled = files.read_whole(index_file, limit=MAX_PICKLE_BYTES)
    if not pickled.endswith(STOP):
        raise IncompleteCheckpoint(f"{where}: {len(pickled)} bytes without an end; still being written")
    index = load(pickled, where=where, reducers=REDUCERS)
    located = _locate(index, location, where)
    _mapping(index, "storage_data", where).clear()  # half of the memory that an index of 10⁵ tensors takes
    names = _check_files(files, located)
    tensors: dict[str, TensorInfo] = {}
    placed: dict[str, tuple[Chunk, ...]] = {}
    lists = _ChunkLists(where)
    for name, declared in sorted(_declarations(index, where), key=lambda pair: pair[0]):
        info = _declared_tensor(name, declared, where)
        tensors[name] = info
        placed[name] = _placed(info, lists.of(name, declared), located.get(name, {}), where)
    objects = {name: next(iter(located[name].values())) for name in sorted(located.keys() - tensors)}
    metadata = _own_step(files, objects)
    read = (index_file, *names)
    return DistributedCheckpoint(format_name, files, tensors, placed, objects, metadata, read)


def _mapping(index: Any, attribute: str, where: str) -> dict[Any, Any]:
    mapping = index.attribute(attribute) if isinstance(index, Stub) else None
    if not isinstance(mapping, dict):
        raise CorruptCheckpoint(f"{where}: no {attribute}; this is not a DCP index")
    return mapping


def _declarations(index: Any, where: str) -> Iterator[tuple[str, Stub]]:
    """The tensors among what the index declares."""
    for name, declared in _mapping(index, "state_dict_metadata", where).items():
        if isinstance(declared, Stub) and declared.path.endswith(".TensorStorageMetadata"):
            yield checked_tensor_name(name, where=where), declared


class _ChunkLists:
    """Gives each tensor's list of chunks once: a list that tensors share would be walked for each of them."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._seen: set[int] = set()

    def of(self, name: str, declared: Stub) -> list[Any]:
        """The tensor's chunks as declared, not yet checked."""
        chunks = declared.attribute("chunks")
        if not isinstance(chunks, list) or id(chunks) in self._seen:
            raise CorruptCheckpoint(f"{self._where}: tensor {shown(name)} has no chunks of its own")
        self._seen.add(id(chunks))
        return chunks


def _locate(index: Any, location: Location, where: str) -> Located:
    located: dict[str, dict[str, Chunk]] = {}
    for key, info in _mapping(index, "storage_data", where).items():
        if not isinstance(key, Stub) or not isinstance(info, Stub):
            raise CorruptCheckpoint(f"{where}: storage_data holds something that is no chunk")
        name = checked_tensor_name(key.attribute("fqn"), where=where)
        start = key.attribute("offset")
        offset, length = info.attribute("offset"), info.attribute("length")
        if not are_counts((offset, length)) or not (start is None or are_counts(start)):
            raise CorruptCheckpoint(f"{where}: a chunk of {shown(name)} has no sound place")
        if info.attribute("transform_descriptors"):
            raise UnsupportedCheckpoint(
                f"{where}: chunks are stored through a transformation ({shown(name)}), such as compression;"
                " save without storage extensions"
            )
        file = location.at(checked_name(info.attribute("relative_path"), where=where))
        first = tuple(start or ())
        located.setdefault(name, {})[text_of(first)] = Chunk(file, offset, length, first, ())
    return located


def _check_files(files: Files, located: Located) -> tuple[str, ...]:
    """Names of all chunk files, once each is long enough for every chunk in it."""
    needed: dict[str, int] = {}
    for parts in located.values():
        for chunk in parts.values():
            needed[chunk.file] = max(needed.get(chunk.file, 0), chunk.offset + chunk.length)
    for name, size in sorted(needed.items()):
        try:
            actual = files.state(name).size
        except VanishedCheckpoint as error:
            raise IncompleteCheckpoint(f"{error}, though {METADATA} names it") from error
        if actual < size:
            raise IncompleteCheckpoint(f"{files.root / name}: {actual} bytes, {METADATA} needs {size}")
    return tuple(sorted(needed))


def _declared_tensor(name: str, declared: Stub, where: str) -> TensorInfo:
    dtype = _dtype_of(declared.attribute("properties"))
    if dtype is None or dtype.module != "torch" or len(dtype.name) > MAX_DTYPE_CHARACTERS:
        raise CorruptCheckpoint(f"{where}: tensor {shown(name)} has no dtype")
    return TensorInfo(name, dtype.name, checked_shape(name, declared.attribute("size"), where=where))


def _dtype_of(properties: Any) -> Global | None:
    """From `TensorProperties`, whose state is a tuple since torch 2.1, and was a dict before."""
    state = properties.state if isinstance(properties, Stub) else None
    first: Any = None
    if isinstance(state, dict):
        first = state.get("dtype")
    elif isinstance(state, tuple) and state:
        first = state[0]
    return first if isinstance(first, Global) else None


def _placed(
    info: TensorInfo, declared: list[Any], located: Mapping[str, Chunk], where: str
) -> tuple[Chunk, ...]:
    """The tensor's chunks with their shapes; together they cover it exactly once.

    Raises:
        CorruptCheckpoint: a hole, an overlap, or a chunk that lies nowhere.
        UnsupportedCheckpoint: cut along too many dimensions.
    """
    placed: list[Chunk] = []
    for part in declared:
        start: Any = part.attribute("offsets") if isinstance(part, Stub) else None
        shape: Any = part.attribute("sizes") if isinstance(part, Stub) else None
        if not (are_counts(start) and are_counts(shape) and is_inside(start, shape, info.shape)):
            raise CorruptCheckpoint(f"{where}: a chunk of {shown(info.name)} lies outside of {info.shape}")
        if 0 in shape:
            continue
        chunk = located.get(text_of(start))
        if chunk is None:
            raise CorruptCheckpoint(
                f"{where}: the chunk of {shown(info.name)} at {shown(start)} lies nowhere"
            )
        placed.append(replace(chunk, shape=tuple(shape)))
    if len(placed) == 1 and placed[0].shape == info.shape:
        return tuple(placed) if info.dtype in READABLE_DTYPES else ()
    check_cover(info.name, info.shape, [(chunk.start, chunk.shape) for chunk in placed], where=where)
    if info.dtype not in READABLE_DTYPES:
        return ()
    return tuple(sorted(placed, key=lambda chunk: chunk.start))


def _own_step(files: Files, objects: Mapping[str, Chunk]) -> dict[str, Any]:
    """The step that the trainer saved as an object of its own (`step`, `train_state.step` …)."""
    entries: dict[str, Chunk] = {}
    for name in sorted(objects, key=lambda name: (name.count("."), name)):
        key = name.rsplit(".", 1)[-1]
        if key in STEP_KEYS and objects[name].length <= MAX_STEP_ENTRY_BYTES:
            entries.setdefault(key, objects[name])
    found: dict[str, Any] = {}
    for key, chunk in entries.items():
        found.update(plain_values({key: _read_object(files, chunk)}))
    return found


def _read_object(files: Files, chunk: Chunk) -> Any:
    return read_torch_file(files, chunk.file, start=chunk.offset, length=chunk.length).content

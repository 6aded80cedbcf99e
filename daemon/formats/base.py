"""What every checkpoint format gives: names first, then where the bytes of one tensor lie.

A format reads headers only. It answers *what is there* (`Checkpoint.tensors`) and *where it is*
(`Checkpoint.pieces`); it never touches tensor data and never imports torch. One reader,
`foreshock.daemon.formats.reading`, turns pieces into tensors for all formats alike.
"""

from __future__ import annotations

import math
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from foreshock.daemon.errors import CorruptCheckpoint, UnreadableCheckpoint, UnsupportedCheckpoint
from foreshock.daemon.formats.files import Files, explain
from foreshock.daemon.formats.quoting import shown
from foreshock.daemon.formats.tree import below

if TYPE_CHECKING:
    from torch import Tensor

MAX_DIMENSIONS = 8
MAX_NAME_BYTES = 4096
MAX_DTYPE_CHARACTERS = 40
MAX_ELEMENTS = 1 << 48
MAX_COUNT = (1 << 63) - 1

READABLE_DTYPES: Mapping[str, int] = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
}
"""Names of the dtypes that can be measured, with bytes per element; all else is named and refused."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor as its header declares it.

    Attributes:
        name: the key under which the framework saved it, unchanged.
        dtype: torch's name without the prefix (`bfloat16`), also for dtypes we cannot read (`int64`).
        shape: the whole tensor's, not a shard's.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def num_elements(self) -> int:
        """Elements of the whole tensor."""
        return math.prod(self.shape)

    @property
    def num_bytes(self) -> int:
        """Bytes of the whole tensor; 0 for a dtype that cannot be read."""
        return self.num_elements * READABLE_DTYPES.get(self.dtype, 0)


@dataclass(frozen=True, slots=True)
class Piece:
    """A strided block of one file, and its place in the tensor.

    Attributes:
        file: relative to the checkpoint's `root`.
        offset: byte at which the block's first element lies.
        shape: of the block.
        strides: in elements, one a dimension; never negative.
        destination: index of the block's first element in the whole tensor.
    """

    file: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    destination: tuple[int, ...]

    @property
    def span(self) -> int:
        """Elements from the first to the last one, gaps included; 0 for an empty block."""
        return span_of(self.shape, self.strides)


def span_of(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Elements from the first to the last one of a strided block, gaps included; 0 for an empty block."""
    if 0 in shape:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides of a dense tensor, in elements."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def repeats_memory(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether a strided block could show one element of its storage twice.

    Answers yes as well for views whose rows interleave without meeting; nothing that is trained is one.
    """
    extent = 1
    for size, stride in sorted(zip(shape, strides, strict=True), key=lambda dimension: dimension[1]):
        if size > 1 and stride < extent:
            return True
        extent += max(size - 1, 0) * stride
    return False


def are_counts(values: object, *, most: int = MAX_DIMENSIONS) -> bool:
    """Whether it is a list or tuple of at most `most` plain integers from 0 to 2⁶³ - 1."""
    return (
        isinstance(values, list | tuple)
        and len(values) <= most
        and all(type(value) is int and 0 <= value <= MAX_COUNT for value in values)
    )


def checked_tensor_name(name: object, *, where: str) -> str:
    """A tensor's name, or `CorruptCheckpoint` when no framework could have given it and no database holds it.

    It is a string of at most `MAX_NAME_BYTES` bytes of UTF-8 without NUL; it may be empty.
    """
    try:
        if isinstance(name, str) and "\0" not in name and len(name.encode("utf-8")) <= MAX_NAME_BYTES:
            return name
    except UnicodeEncodeError:
        pass
    raise CorruptCheckpoint(f"{where}: {shown(name)} cannot be the name of a tensor")


def checked_shape(name: str, shape: object, *, where: str) -> tuple[int, ...]:
    """The shape as a tuple of plain ints.

    Raises:
        CorruptCheckpoint: it cannot be one, or claims more elements than any tensor has.
        UnsupportedCheckpoint: more than `MAX_DIMENSIONS` dimensions.
    """
    if isinstance(shape, list | tuple) and len(shape) > MAX_DIMENSIONS:
        raise UnsupportedCheckpoint(
            f"{where}: tensor {shown(name)} has {len(shape)} dimensions, the limit is {MAX_DIMENSIONS}"
        )
    if not isinstance(shape, list | tuple) or not are_counts(shape):
        raise CorruptCheckpoint(f"{where}: tensor {shown(name)} has an impossible shape {shown(shape)}")
    if math.prod(max(n, 1) for n in shape) > MAX_ELEMENTS:
        raise CorruptCheckpoint(
            f"{where}: tensor {shown(name)} of shape {shown(shape)} claims more than {MAX_ELEMENTS} elements"
        )
    return tuple(shape)


@dataclass(frozen=True, slots=True)
class Location:
    """A checkpoint's place: a directory, or one file in it.

    Attributes:
        files: reads below the directory.
        entry: the file's name; empty when the directory as a whole is the checkpoint.
        folder: below the directory, where a framework keeps the part that is meant; mostly empty. Names
            of `Files` stay relative to the directory: see `at`.
    """

    files: Files
    entry: str = ""
    folder: str = ""

    @property
    def path(self) -> Path:
        """For people and messages."""
        return self.files.root / self.at(self.entry)

    def names(self) -> tuple[str, ...]:
        """All files that are there, sorted, relative to the folder."""
        return tuple(sorted(below(frozenset(self.files.names()), self.folder)))

    def names_meant(self) -> frozenset[str]:
        """What formats are asked to claim: only the file itself when the location is one."""
        return frozenset((self.entry,) if self.entry else self.names())

    def at(self, name: str) -> str:
        """A name relative to the folder as `Files` and `Piece.file` want it: relative to the directory."""
        return f"{self.folder}/{name}".rstrip("/") if self.folder else name

    def within(self, folder: str) -> Location:
        """The same directory, with a folder below this one's folder in view."""
        return replace(self, folder=self.at(folder))

    @classmethod
    def of(cls, path: Path) -> Location:
        """The place a user names; `VanishedCheckpoint` if nothing is there."""
        try:
            is_directory = stat.S_ISDIR(path.stat().st_mode)
        except OSError as error:
            raise explain(error, path) from error
        except ValueError as error:
            raise UnreadableCheckpoint(f"{shown(str(path))}: not a path: {error}") from error
        return cls(Files(path)) if is_directory else cls(Files(path.parent), path.name)


class Format(Protocol):
    """One on-disk layout; `FORMATS` lists them, the stricter before the looser."""

    @property
    def name(self) -> str:
        """Short, for people: `safetensors`, `torch.distributed.checkpoint`."""
        ...

    @property
    def looks_for(self) -> str:
        """What makes this format claim a place, for the message that nothing did."""
        ...

    def claims(self, names: frozenset[str]) -> str:
        """What there looks like this format, for people (`.metadata`); empty when nothing does.

        Args:
            names: relative paths of all files below the directory (see `tree.at_root`, `tree.below`);
                only the file itself when the location is one file.
        """
        ...

    def open(self, location: Location) -> Checkpoint:
        """Read and check all headers.

        Raises:
            IncompleteCheckpoint: more is to come.
            CorruptCheckpoint, UnsupportedCheckpoint, UnreadableCheckpoint, VanishedCheckpoint: see there.
        """
        ...


class Checkpoint(Protocol):
    """One opened checkpoint: its headers are checked, its data untouched."""

    @property
    def format(self) -> str:
        """Which format read it, as in `FORMATS`."""
        ...

    @property
    def root(self) -> Path:
        """The directory that `Piece.file` and `files` are relative to."""
        ...

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor by its saved name, sorted; headers only."""
        ...

    @property
    def files(self) -> tuple[str, ...]:
        """Every file that holds headers or data of this checkpoint."""
        ...

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Plain values found beside the tensors (`iter_num`, `model_args` …), inert."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know: stale files, shards that no index names."""
        ...

    def pieces(self, name: str) -> Iterator[Piece]:
        """Where the tensor's bytes lie; together the pieces cover it exactly once.

        Raises:
            KeyError: no tensor has that name.
            CorruptCheckpoint: a shard's own header contradicts the index.
        """
        ...


@runtime_checkable
class ReadsItself(Protocol):
    """A checkpoint whose tensors do not lie in its files as they are: compressed, or products of factors.

    Its `pieces` yields nothing; `reading.read_tensor` asks it instead.
    """

    def read(self, name: str, files: Files, start: int, stop: int) -> Tensor:
        """Rows `start` to `stop` of a tensor, on the CPU, in the dtype that `tensors` declares.

        Args:
            name: in `Checkpoint.tensors`.
            files: of the checkpoint's root; counts what is read.
            start, stop: within the first dimension; 0 and 1 for a tensor without dimensions.

        Raises:
            KeyError, CorruptCheckpoint, VanishedCheckpoint, UnreadableCheckpoint: as `read_tensor`.
        """
        ...


@dataclass(frozen=True, slots=True)
class MappedCheckpoint:
    """A checkpoint whose pieces are all known once the headers are read."""

    format: str
    root: Path
    tensors: Mapping[str, TensorInfo]
    files: tuple[str, ...]
    layout: Mapping[str, tuple[Piece, ...]]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def pieces(self, name: str) -> Iterator[Piece]:
        """Where the tensor's bytes lie."""
        return iter(self.layout[name])

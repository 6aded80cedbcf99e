"""What `torch.save` writes: a zip archive of one pickle and raw storages, read without torch.

The pickle becomes plain values (`inert_pickle`); every tensor in it becomes a `TensorRef` that says
which bytes of which storage it shows, and with which strides. Tied tensors share a storage, views keep
their strides; both read right because a piece may be strided.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from foreshock.daemon.errors import CorruptCheckpoint, UnsupportedCheckpoint
from foreshock.daemon.formats.base import READABLE_DTYPES, Piece, TensorInfo, checked_shape
from foreshock.daemon.formats.files import Files
from foreshock.daemon.formats.inert_pickle import Global, Reducer, Reference, Stub, load
from foreshock.daemon.formats.zip_directory import Archive, read_archive

MAX_NESTING = 12
MAX_TENSORS = 2_000_000

_STORAGES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
}


@dataclass(frozen=True, slots=True)
class TensorRef:
    """A tensor as the pickle describes it: a strided view of a storage.

    Attributes:
        storage: key of the archive's member `data/<key>`.
        storage_elements: how many elements the pickle says the storage has; None when it says bytes.
        offset, shape, strides: in elements.
    """

    storage: str
    storage_elements: int | None
    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """A tensor that is named but cannot be read, and why."""

    reason: str


# Calls that make tensors ----------------------------------------------------------------------------


def _storage_of(reference: Any) -> tuple[str, str, int]:
    """(dtype, key, elements) of a persistent id."""
    if not isinstance(reference, Reference) or not isinstance(reference.id, tuple) or len(reference.id) != 5:
        raise ValueError("a tensor without a storage")
    kind, storage_type, key, _, elements = reference.id
    if kind != "storage" or not isinstance(storage_type, Global) or type(elements) is not int:
        raise ValueError("a persistent id that is no storage")
    return _STORAGES.get(storage_type.name, storage_type.name), str(key), elements


def _rebuild_tensor(args: tuple[Any, ...]) -> TensorRef:
    """`torch._utils._rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks, …)`."""
    reference, offset, shape, strides = args[:4]
    dtype, key, elements = _storage_of(reference)
    return TensorRef(key, elements, dtype, offset, shape, strides)


def _rebuild_typed_tensor(args: tuple[Any, ...]) -> TensorRef:
    """`_rebuild_tensor_v3`: dtypes without a storage class (fp8) are views of untyped bytes."""
    reference, offset, shape, strides, _, _, dtype = args[:7]
    _, key, _ = _storage_of(reference)
    name = dtype.name if isinstance(dtype, Global) else str(dtype)
    return TensorRef(key, None, name, offset, shape, strides)


def _rebuild_from_type(args: tuple[Any, ...]) -> Any:
    """`torch._tensor._rebuild_from_type_v2(function, type, args, state)`: subclasses of Tensor."""
    function, _, inner, state = args
    path = function.path if isinstance(function, Global) else ""
    if path == "torch._utils._rebuild_wrapper_subclass":
        return _local_tensor(inner, state)
    reducer = REDUCERS.get(path)
    return reducer(inner) if reducer and isinstance(inner, tuple) else Stub(function, (inner,))


def _local_tensor(inner: Any, state: Any) -> TensorRef | Refused:
    """A DTensor: its local part, when that is the whole."""
    shape = inner[2]
    local = Stub(None, (), state).attribute("_local_tensor")
    if not isinstance(local, TensorRef):
        return Refused("a tensor subclass whose data could not be found")
    if tuple(local.shape) != tuple(shape):
        return Refused(
            f"one rank's part {tuple(local.shape)} of a DTensor of shape {tuple(shape)}:"
            " the file does not hold the other ranks' parts"
        )
    return local


def _ordered_dict(args: tuple[Any, ...]) -> dict[Any, Any]:
    if args:
        raise ValueError("an OrderedDict made from pairs")
    return {}


def _size(args: tuple[Any, ...]) -> tuple[Any, ...]:
    (sizes,) = args
    return tuple(sizes) if isinstance(sizes, list | tuple) else ()


REDUCERS: Mapping[str, Reducer] = {
    "collections.OrderedDict": _ordered_dict,
    "torch.Size": _size,
    "torch._utils._rebuild_tensor": _rebuild_tensor,
    "torch._utils._rebuild_tensor_v2": _rebuild_tensor,
    "torch._utils._rebuild_tensor_v3": _rebuild_typed_tensor,
    "torch._utils._rebuild_parameter": lambda args: args[0],
    "torch._utils._rebuild_parameter_with_state": lambda args: args[0],
    "torch._tensor._rebuild_from_type_v2": _rebuild_from_type,
}
"""Calls that torch's pickles hold, evaluated by code of ours."""


# One file ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TorchFile:
    """One archive that `torch.save` wrote.

    Attributes:
        content: the pickled object, inert; tensors are `TensorRef` or `Refused`.
    """

    archive: Archive
    content: Any

    def piece(self, files: Files, name: str, tensor: TensorRef) -> Piece:
        """Where the tensor's bytes lie in the file."""
        where = f"{files.root / self.archive.file}: tensor {name!r:.80}"
        offset = self.archive.data_offset(files, f"data/{tensor.storage}")
        shape = checked_shape(name, tensor.shape, where=str(files.root / self.archive.file))
        item = READABLE_DTYPES[tensor.dtype]
        piece = Piece(
            self.archive.file, offset + tensor.offset * item, shape, tuple(tensor.strides), (0,) * len(shape)
        )
        size = self.archive.members[f"data/{tensor.storage}"].size
        if (tensor.offset + piece.span) * item > size:
            raise CorruptCheckpoint(f"{where}: reaches beyond its storage of {size} bytes")
        return piece


def read_torch_file(files: Files, file: str, *, start: int = 0, length: int | None = None) -> TorchFile:
    """Open an archive: its directory and its pickle are read, no storage is.

    Raises:
        IncompleteCheckpoint, CorruptCheckpoint, UnsupportedCheckpoint: see `read_archive`.
    """
    archive = read_archive(files, file, start=start, length=length)
    where = str(files.root / file)
    if "data.pkl" not in archive.members:
        raise UnsupportedCheckpoint(f"{where}: a zip archive without data.pkl: TorchScript or another tool's")
    if "byteorder" in archive.members and archive.read(files, "byteorder", limit=16) != b"little":
        raise UnsupportedCheckpoint(f"{where}: saved on a big-endian machine; convert it there")
    pickled = archive.read(files, "data.pkl", limit=256 << 20)
    return TorchFile(archive, load(pickled, where=where, reducers=REDUCERS))


def checked_tensor(file: TorchFile, name: str, tensor: TensorRef, *, where: str) -> TensorInfo:
    """The tensor's declaration, once its numbers agree with each other and with the storage.

    Raises:
        CorruptCheckpoint: impossible shape or strides, or a storage that is absent or of another size.
    """
    shape = checked_shape(name, tensor.shape, where=where)
    strides = tensor.strides
    plain = isinstance(strides, tuple | list) and all(type(s) is int and s >= 0 for s in strides)
    if not plain or len(strides) != len(shape) or type(tensor.offset) is not int or tensor.offset < 0:
        raise CorruptCheckpoint(f"{where}: tensor {name!r:.80} has impossible strides or offset")
    if any(stride == 0 and size > 1 for size, stride in zip(shape, strides, strict=True)):
        raise UnsupportedCheckpoint(
            f"{where}: tensor {name!r:.80} repeats memory (a stride of 0); no training weight does"
        )
    member = file.archive.members.get(f"data/{tensor.storage}")
    if member is None:
        raise CorruptCheckpoint(
            f"{where}: tensor {name!r:.80} names an absent storage {tensor.storage!r:.40}"
        )
    item = READABLE_DTYPES.get(tensor.dtype)
    if item and tensor.storage_elements is not None and tensor.storage_elements * item != member.size:
        raise CorruptCheckpoint(
            f"{where}: tensor {name!r:.80} claims a storage of {tensor.storage_elements * item} bytes,"
            f" the file holds {member.size}"
        )
    return TensorInfo(name, tensor.dtype, shape)


# Nested values ----------------------------------------------------------------------------------------


def walk_tensors(content: Any) -> Iterator[tuple[str, TensorRef | Refused]]:
    """Every tensor of a nested state dict with its dotted path, readable or `Refused`."""
    count = 0
    stack: list[tuple[str, Any, int]] = [("", content, 0)]
    while stack:
        path, value, depth = stack.pop()
        if isinstance(value, TensorRef | Refused):
            yield path, value
            count += 1
        elif isinstance(value, dict | list | tuple) and depth < MAX_NESTING:
            pairs = value.items() if isinstance(value, dict) else enumerate(value)
            for key, child in pairs:
                if isinstance(child, TensorRef | Refused | dict | list | tuple):
                    stack.append((f"{path}.{key}" if path else str(key), child, depth + 1))
        if count > MAX_TENSORS or len(stack) > 4 * MAX_TENSORS:
            raise UnsupportedCheckpoint(f"more than {MAX_TENSORS} tensors in one file")


def plain_values(content: Any, depth: int = 4) -> dict[str, Any]:
    """The numbers, strings and small mappings beside the tensors: step, model arguments."""
    if isinstance(content, Stub):
        content = content.state
    if not isinstance(content, dict) or depth == 0:
        return {}
    plain: dict[str, Any] = {}
    for key, value in content.items():
        if isinstance(value, bool | int | float | str) or value is None:
            plain[str(key)] = value
        elif nested := plain_values(value, depth - 1):
            plain[str(key)] = nested
    return plain

"""What `torch.save` writes: a zip archive of one pickle and raw storages, read without torch.

The pickle becomes plain values (`inert_pickle`); every tensor in it becomes a `TensorRef` that says
which bytes of which storage it shows, and with which strides. Tied tensors share a storage, views keep
their strides; both read right because a piece may be strided.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from foreshock.daemon.errors import CorruptCheckpoint, UnsupportedCheckpoint
from foreshock.daemon.formats.base import (
    MAX_DTYPE_CHARACTERS,
    READABLE_DTYPES,
    Piece,
    TensorInfo,
    are_counts,
    checked_shape,
    repeats_memory,
    span_of,
)
from foreshock.daemon.formats.files import Files
from foreshock.daemon.formats.inert_pickle import MAX_PICKLE_BYTES, Reducer, load
from foreshock.daemon.formats.inert_values import Global, Reference, Stub
from foreshock.daemon.formats.quoting import shown
from foreshock.daemon.formats.zip_directory import Archive, read_archive

MAX_RANK = 64
"""Dimensions that torch itself allows."""

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


@dataclass(frozen=True, slots=True, eq=False)
class TensorRef:
    """A tensor as the pickle describes it: a strided view of a storage. All numbers are counts.

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


@dataclass(frozen=True, slots=True)
class LocalPart(Refused):
    """One rank's part of a distributed tensor: unreadable alone, a fragment for who has all ranks' files.

    Attributes:
        local: what this file holds.
        shape: of the whole tensor, as the pickle claims; counts.
        spec: the saved `DTensorSpec`: placements and device mesh, inert.
    """

    local: TensorRef
    shape: tuple[int, ...]
    spec: Stub


# Calls that make tensors ----------------------------------------------------------------------------


def _storage_of(reference: Any) -> tuple[str, str, int]:
    """(dtype, key, elements) of a persistent id."""
    if not isinstance(reference, Reference) or not isinstance(reference.id, tuple) or len(reference.id) != 5:
        raise ValueError("a tensor without a storage")
    kind, storage_type, key, _, elements = reference.id
    if kind != "storage" or not isinstance(storage_type, Global) or not are_counts((elements,)):
        raise ValueError("a persistent id that is no storage")
    if not isinstance(key, str) and not are_counts((key,)):
        raise ValueError("a storage without a key")
    return _STORAGES.get(storage_type.name, storage_type.name), str(key), elements


def _view(key: str, elements: int | None, dtype: str, place: tuple[Any, Any, Any]) -> TensorRef:
    """A tensor at (offset, shape, strides), once these are plain counts."""
    offset, shape, strides = place
    if not (
        are_counts((offset,)) and are_counts(shape, most=MAX_RANK) and are_counts(strides, most=MAX_RANK)
    ):
        raise ValueError(f"impossible offset, shape or strides: {shown(place)}")
    if len(dtype) > MAX_DTYPE_CHARACTERS:
        raise ValueError(f"a dtype named {shown(dtype)}")
    if len(shape) != len(strides):
        raise ValueError(f"{len(strides)} strides for the shape {shown(shape)}")
    return TensorRef(key, elements, dtype, offset, tuple(shape), tuple(strides))


def _rebuild_tensor(args: tuple[Any, ...]) -> TensorRef:
    """`torch._utils._rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks, …)`."""
    reference, offset, shape, strides = args[:4]
    dtype, key, elements = _storage_of(reference)
    return _view(key, elements, dtype, (offset, shape, strides))


def _rebuild_typed_tensor(args: tuple[Any, ...]) -> TensorRef:
    """`_rebuild_tensor_v3`: dtypes without a storage class (fp8) are views of untyped bytes."""
    reference, offset, shape, strides, _, _, dtype = args[:7]
    _, key, _ = _storage_of(reference)
    if not isinstance(dtype, Global):
        raise TypeError("a tensor without a dtype")
    return _view(key, None, dtype.name, (offset, shape, strides))


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
    if not isinstance(local, TensorRef) or not are_counts(shape, most=MAX_RANK):
        return Refused("a tensor subclass whose data could not be found")
    spec = Stub(None, (), state).attribute("_spec")
    if local.shape == tuple(shape):
        return local
    reason = (
        f"one rank's part {local.shape} of a DTensor of shape {tuple(shape)}:"
        " the file does not hold the other ranks' parts"
    )
    return LocalPart(reason, local, tuple(shape), spec) if isinstance(spec, Stub) else Refused(reason)


def _ordered_dict(args: tuple[Any, ...]) -> dict[Any, Any]:
    if args:
        raise ValueError("an OrderedDict made from pairs")
    return {}


def _size(args: tuple[Any, ...]) -> tuple[int, ...]:
    (sizes,) = args
    if not are_counts(sizes, most=MAX_RANK):
        raise ValueError(f"an impossible torch.Size: {shown(sizes)}")
    return tuple(sizes)


def _refused(reason: str) -> Reducer:
    refused = Refused(reason)
    return lambda _: refused


REDUCERS: Mapping[str, Reducer] = {
    "collections.OrderedDict": _ordered_dict,
    "torch.Size": _size,
    "torch._utils._rebuild_tensor": _rebuild_tensor,
    "torch._utils._rebuild_tensor_v2": _rebuild_tensor,
    "torch._utils._rebuild_tensor_v3": _rebuild_typed_tensor,
    "torch._utils._rebuild_parameter": lambda args: args[0],
    "torch._utils._rebuild_parameter_with_state": lambda args: args[0],
    "torch._tensor._rebuild_from_type_v2": _rebuild_from_type,
    "torch._utils._rebuild_meta_tensor_no_storage": _refused("a tensor of the meta device: it has no data"),
    "torch._utils._rebuild_nested_tensor": _refused("a nested tensor"),
    "torch._utils._rebuild_qtensor": _refused("a quantized tensor"),
    "torch._utils._rebuild_sparse_tensor": _refused("a sparse tensor"),
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

    def piece(self, files: Files, tensor: TensorRef) -> Piece:
        """Where the tensor's bytes lie in the file, once `checked_tensor` found its numbers sound."""
        offset = self.archive.data_offset(files, f"data/{tensor.storage}")
        start = offset + tensor.offset * READABLE_DTYPES[tensor.dtype]
        return Piece(self.archive.file, start, tensor.shape, tensor.strides, (0,) * len(tensor.shape))


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
    pickled = archive.read(files, "data.pkl", limit=MAX_PICKLE_BYTES)
    return TorchFile(archive, load(pickled, where=where, reducers=REDUCERS))


def checked_tensor(file: TorchFile, name: str, tensor: TensorRef, *, where: str) -> TensorInfo:
    """The tensor's declaration, once its numbers agree with each other and with the storage.

    Raises:
        CorruptCheckpoint: impossible shape or strides, or a storage that is absent or of another size.
        UnsupportedCheckpoint: a view that shows some of its memory more than once.
    """
    info = TensorInfo(name, tensor.dtype, checked_shape(name, tensor.shape, where=where))
    if repeats_memory(tensor.shape, tensor.strides):
        raise UnsupportedCheckpoint(
            f"{where}: tensor {shown(name)} of shape {tensor.shape} and strides {tensor.strides}"
            " repeats memory; no training weight does"
        )
    member = file.archive.members.get(f"data/{tensor.storage}")
    if member is None:
        raise CorruptCheckpoint(
            f"{where}: tensor {shown(name)} names an absent storage {shown(tensor.storage)}"
        )
    item = READABLE_DTYPES.get(tensor.dtype)
    if item is None:
        return info
    if tensor.storage_elements is not None and tensor.storage_elements * item != member.size:
        raise CorruptCheckpoint(
            f"{where}: tensor {shown(name)} claims a storage of {tensor.storage_elements * item} bytes,"
            f" the file holds {member.size}"
        )
    reach = (tensor.offset + span_of(tensor.shape, tensor.strides)) * item
    if reach > member.size:
        raise CorruptCheckpoint(
            f"{where}: tensor {shown(name)} reaches to byte {reach} of a storage of {member.size}"
        )
    return info

"""Megatron-Core `torch_dist` checkpoints: a DCP index with a marker of its own, one tensor for all layers.

A model of equal layers keeps each parameter of all of them as one tensor with a leading axis of layers;
here every layer gets its own name back (`decoder.layers.3.self_attention.linear_qkv.weight`), and its
chunks alone are read. float32 masters that the optimizer saves under the model's names take the place of
the weights. `metadata.json` is written after everything else.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from foreshock.daemon.errors import IncompleteCheckpoint, UnsupportedCheckpoint
from foreshock.daemon.formats.base import Checkpoint, Location, Piece, TensorInfo
from foreshock.daemon.formats.dcp import (
    MEGATRON_OBJECTS,
    METADATA,
    Chunk,
    DistributedCheckpoint,
    read_distributed,
)
from foreshock.daemon.formats.nested_values import plain_values
from foreshock.daemon.formats.quoting import shown
from foreshock.daemon.formats.strict_json import is_cut, parse_object
from foreshock.daemon.formats.torch_zip import read_torch_file
from foreshock.daemon.formats.tree import at_root
from foreshock.daemon.formats.within import Within

MARKER = "metadata.json"
COMMON = "common.pt"
MAX_MARKER_BYTES = 1 << 20
MAX_LAYERS = 4096

_BACKEND = "sharded_backend"
_OPTIMIZER = "optimizer."
_MASTERS = ("optimizer.state.fp32_param.", "optimizer.state.param.")
_UNNAMED_MASTERS = re.compile(r"optimizer\.(?:distributed\.)?(?:chained_\d+\.)?.*\bbucket_idx_\d+\.param$")
_STACKED = re.compile(r"(?P<before>(?:.*\.)?layers)\.(?P<after>(?!\d+\.)[^.]+\..+)")

_ADVICE = (
    "the optimizer's float32 masters are saved without their parameters' names, so the weights are read:"
    " save with --dist-ckpt-optim-fully-reshardable to have masters measured"
)


@dataclass(frozen=True, slots=True)
class Saved:
    """What one presented tensor is a view of.

    Attributes:
        key: in the index.
        layer: along the leading axis of layers; None for a tensor without one.
    """

    key: str
    layer: int | None = None


@dataclass(frozen=True, slots=True)
class MegatronCoreCheckpoint:
    """An index in which every layer has its own names."""

    inner: DistributedCheckpoint
    format: str
    tensors: Mapping[str, TensorInfo]
    saved: Mapping[str, Saved]
    files: tuple[str, ...]
    metadata: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    _by_layer: dict[str, dict[int, list[Chunk]]] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        """The checkpoint's directory."""
        return self.inner.root

    def pieces(self, name: str) -> Iterator[Piece]:
        """Where the layer's bytes lie."""
        saved = self.saved[name]
        if saved.layer is None:
            yield from self.inner.pieces(saved.key)
            return
        item_bytes = self.tensors[name].num_bytes // max(self.tensors[name].num_elements, 1)
        for piece in self.inner.pieces_of(saved.key, self._chunks(saved.key).get(saved.layer, ())):
            skipped = saved.layer - piece.destination[0]
            yield Piece(
                piece.file,
                piece.offset + skipped * piece.strides[0] * item_bytes,
                piece.shape[1:],
                piece.strides[1:],
                piece.destination[1:],
            )

    def _chunks(self, key: str) -> dict[int, list[Chunk]]:
        """The chunks of a stacked tensor that hold any of a layer, by layer."""
        if key not in self._by_layer:
            found: defaultdict[int, list[Chunk]] = defaultdict(list)
            for chunk in self.inner.chunks[key]:
                for layer in range(chunk.start[0], chunk.start[0] + chunk.shape[0]):
                    found[layer].append(chunk)
            self._by_layer[key] = dict(found)
        return self._by_layer[key]


@dataclass(frozen=True, slots=True)
class MegatronCore:
    """`torch_dist` directories of Megatron-LM, Megatron-Bridge, NeMo 2 and verl's Megatron backend."""

    name: str = "megatron_core"
    looks_for: str = f"{MARKER} or {COMMON} beside {METADATA} or *.distcp"

    def claims(self, names: frozenset[str]) -> str:
        """The marker or the common file, beside shards; or the folders of the old zarr backend."""
        root = at_root(names)
        own = next((name for name in (MARKER, COMMON) if name in root), "")
        if own and (METADATA in root or any(name.endswith(".distcp") for name in root)):
            return own
        if COMMON in root and (MARKER in root or any(name.endswith("/.zarray") for name in names)):
            return COMMON
        return ""

    def open(self, location: Location) -> Checkpoint:
        """Read the marker, the index and the common state."""
        names = frozenset(location.names())
        _check_marker(location, names)
        inner = read_distributed(location, self.name)
        common, read = _common_state(location, names, inner)
        tensors, saved = _layers_apart(inner)
        tensors, saved, notes = _with_masters(tensors, saved, inner)
        files = (location.at(MARKER), *read, *(name for name in inner.files if name not in read))
        metadata = {**inner.metadata, **common}
        return MegatronCoreCheckpoint(inner, self.name, tensors, saved, files, metadata, notes)


NEMO = Within("nemo", "weights", MegatronCore())
"""NeMo 2: the weights beside `context/`."""


def _check_marker(location: Location, names: frozenset[str]) -> None:
    """The marker is there and names the backend that is read here."""
    files, file = location.files, location.at(MARKER)
    where = str(files.root / file)
    if MARKER not in names:
        raise IncompleteCheckpoint(f"{where}: not there yet; it is written last")
    text = files.read_whole(file, limit=MAX_MARKER_BYTES)
    if is_cut(text):
        raise IncompleteCheckpoint(f"{where}: cut off; still being written")
    backend = parse_object(text, where=where).get(_BACKEND)
    if backend != "torch_dist":
        raise UnsupportedCheckpoint(
            f"{where}: {_BACKEND} is {shown(backend)}, only torch_dist can be read:"
            " train with --ckpt-format torch_dist, or convert the checkpoint with Megatron-Core 0.12 or older"
        )


def _common_state(
    location: Location, names: frozenset[str], inner: DistributedCheckpoint
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Arguments, iteration and the like, and the file they were read from besides the index."""
    if COMMON in names:
        file = location.at(COMMON)
        return plain_values(read_torch_file(location.files, file).content), (file,)
    common: dict[str, Any] = {}
    for name in inner.objects:
        if name.startswith(MEGATRON_OBJECTS):
            content = inner.read_object(name)
            for part in content if isinstance(content, list) else (content,):
                common |= plain_values(part)
    if not common:
        where = location.files.root / location.at(COMMON)
        raise IncompleteCheckpoint(f"{where}: not there, nor is its content an entry of {METADATA}")
    return common, ()


def _layers_apart(inner: DistributedCheckpoint) -> tuple[dict[str, TensorInfo], dict[str, Saved]]:
    """The model's tensors, those of all layers taken apart; the optimizer's are left out."""
    saved: dict[str, Saved] = {}
    for key, info in inner.tensors.items():
        if key.startswith(_OPTIMIZER):
            continue
        stacked = _STACKED.fullmatch(key)
        if stacked is None or not info.shape:
            saved[key] = Saved(key)
            continue
        if info.shape[0] > MAX_LAYERS:
            raise UnsupportedCheckpoint(f"{inner.root}: {shown(key)} holds {info.shape[0]} layers")
        for layer in range(info.shape[0]):
            saved[f"{stacked['before']}.{layer}.{stacked['after']}"] = Saved(key, layer)
    return {name: _declared(name, saved[name], inner) for name in sorted(saved)}, saved


def _declared(name: str, saved: Saved, inner: DistributedCheckpoint) -> TensorInfo:
    info = inner.tensors[saved.key]
    return replace(info, name=name, shape=info.shape if saved.layer is None else info.shape[1:])


def _with_masters(
    tensors: dict[str, TensorInfo], saved: dict[str, Saved], inner: DistributedCheckpoint
) -> tuple[dict[str, TensorInfo], dict[str, Saved], tuple[str, ...]]:
    """float32 masters in the place of weights of less precision, where they are saved by name."""
    masters = _masters_by_key(inner)
    better = {name: masters[each.key] for name, each in saved.items() if each.key in masters}
    if better:
        saved = saved | {name: replace(saved[name], key=key) for name, key in better.items()}
        tensors = tensors | {name: _declared(name, saved[name], inner) for name in better}
        return tensors, saved, (f"float32 masters are read for {len(better)} of {len(tensors)} tensors",)
    if any(_UNNAMED_MASTERS.fullmatch(key) for key in inner.tensors):
        return tensors, saved, (_ADVICE,)
    return tensors, saved, ()


def _masters_by_key(inner: DistributedCheckpoint) -> dict[str, str]:
    """The masters of the tensors that are saved with less precision, by the tensors' keys."""
    found: dict[str, str] = {}
    for key, info in inner.tensors.items():
        if key.startswith(_OPTIMIZER) or info.dtype == "float32":
            continue
        for master in (prefix + each for prefix in _MASTERS for each in (key, key.removeprefix("module."))):
            held = inner.tensors.get(master)
            if held is not None and held.dtype == "float32" and held.shape == info.shape:
                found.setdefault(key, master)
    return found

"""Every parser of headers as a function of bytes, with sound inputs to start from.

A parser may raise errors of ours and nothing else; whatever it returns must agree with itself.
"""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save

from foreshock.daemon.formats import dcp
from foreshock.daemon.formats.base import READABLE_DTYPES, Location
from foreshock.daemon.formats.files import FileState
from foreshock.daemon.formats.inert_pickle import load
from foreshock.daemon.formats.nested_values import plain_values, walk_tensors
from foreshock.daemon.formats.safetensors import read_safetensors_file
from foreshock.daemon.formats.shard_index import read_shard_index
from foreshock.daemon.formats.torch_file import read_torch_shard
from foreshock.daemon.formats.torch_zip import REDUCERS
from tests.writers.dcp_chunks import ChunkWriter, saved
from tests.writers.memory_files import MemoryFiles

WEIGHTS = {
    "layers.0.weight": torch.arange(12.0).reshape(3, 4),
    "layers.1.weight": torch.arange(6, dtype=torch.bfloat16).reshape(3, 2),
    "steps": torch.arange(3),
}


@dataclass(frozen=True, slots=True)
class Parser:
    """One parser.

    Attributes:
        parse: raises `CheckpointError` for what is not sound.
        seeds: sound inputs.
    """

    name: str
    parse: Callable[[bytes], None]
    seeds: tuple[bytes, ...]


def parse_safetensors(content: bytes) -> None:
    """The whole file; ranges of what is accepted lie within it."""
    opened = read_safetensors_file(MemoryFiles(content), "model.safetensors")
    for name, info in opened.tensors.items():
        for piece in opened.layout[name]:
            if info.dtype in READABLE_DTYPES:
                assert piece.offset + piece.span * READABLE_DTYPES[info.dtype] <= len(content)


def parse_shard_index(content: bytes) -> None:
    """The index of sharded files; no name leads outside."""
    index = read_shard_index(MemoryFiles(content), "model.safetensors.index.json")
    assert not any(name.startswith("/") or ".." in name.split("/") for name in index.weight_map.values())


def parse_pickle(content: bytes) -> None:
    """A pickle, and the walks over what it describes."""
    value = load(content, where="fuzz", reducers=REDUCERS)
    plain_values(value)
    for _ in walk_tensors(value, where="fuzz"):
        pass


def parse_torch_file(content: bytes) -> None:
    """A whole archive; pieces of what is accepted lie within it."""
    files = MemoryFiles(content)
    shard = read_torch_shard(files, "ckpt.pt")
    for name, info in shard.tensors.items():
        if info.dtype in READABLE_DTYPES:
            piece = shard.file.piece(files, shard.refs[name])
            assert piece.offset + piece.span * READABLE_DTYPES[info.dtype] <= len(content)


class _DcpFiles(MemoryFiles):
    """The index, beside chunk files that are always long enough."""

    def names(self) -> tuple[str, ...]:
        return (dcp.METADATA,)

    def state(self, name: str) -> FileState:
        return super().state(name) if name == dcp.METADATA else FileState(1 << 62, 0, 0)


def parse_dcp_index(content: bytes) -> None:
    """`.metadata`; chunks of what is accepted lie within their tensors."""
    opened = dcp.read_distributed(Location(_DcpFiles(content)), "fuzz")
    for name, info in opened.tensors.items():
        for chunk in opened.chunks[name]:
            assert all(
                first + size <= limit
                for first, size, limit in zip(chunk.start, chunk.shape, info.shape, strict=True)
            )


def _dcp_index() -> bytes:
    writer = ChunkWriter()
    for name, tensor in WEIGHTS.items():
        writer.add(name, tensor, (2, 2)[: tensor.dim()])
    return pickle.dumps(writer.metadata())


def _old_pickle() -> bytes:
    buffer = io.BytesIO()
    pickle.dump({"iter_num": 3, "args": {"n_head": 2}, "betas": (0.9, 0.95)}, buffer, protocol=0)
    return buffer.getvalue()


PARSERS = (
    Parser("safetensors", parse_safetensors, (save(WEIGHTS), save({"w": torch.ones(1)}, {"format": "pt"}))),
    Parser(
        "shard_index",
        parse_shard_index,
        (json.dumps({"metadata": {}, "weight_map": {"a": "model-1.safetensors"}}).encode(),),
    ),
    Parser("pickle", parse_pickle, (pickle.dumps(WEIGHTS["steps"].tolist()), _old_pickle(), _dcp_index())),
    Parser("torch_file", parse_torch_file, (saved(WEIGHTS), saved({"model": WEIGHTS, "iter_num": 7}))),
    Parser("dcp_index", parse_dcp_index, (_dcp_index(),)),
)


def write_seeds(parser: Parser, directory: Path) -> None:
    """The parser's sound inputs, one a file."""
    directory.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(parser.seeds):
        (directory / f"seed-{number}").write_bytes(seed)

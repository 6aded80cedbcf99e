"""Files with a few bytes changed: whatever comes out is one of our errors, or tensors of the named shape."""

from __future__ import annotations

import pickle
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from foreshock.daemon.errors import CheckpointError
from foreshock.daemon.formats import open_checkpoint
from foreshock.daemon.formats.files import Files
from foreshock.daemon.formats.inert_pickle import load
from foreshock.daemon.formats.reading import read_tensor
from foreshock.daemon.formats.torch_zip import REDUCERS
from tests.writers.layouts import (
    Weights,
    write_dcp,
    write_dcp_grid,
    write_nanogpt_file,
    write_safetensors,
    write_sharded_safetensors,
    write_sharded_torch_files,
    write_torch_file,
)

QUICK, THOROUGH = 2_000, 40_000
MAX_SECONDS = 2

WEIGHTS = {
    "layers.0.weight": torch.arange(12.0).reshape(3, 4),
    "layers.1.weight": torch.arange(6, dtype=torch.bfloat16).reshape(3, 2),
    "steps": torch.arange(3),
}

Write = Callable[[Path, Weights], None]

rounds = pytest.mark.parametrize("number", [QUICK, pytest.param(THOROUGH, marks=pytest.mark.slow)])


def read_whatever_it_is(root: Path) -> None:
    """Read all; only errors of ours are let pass."""
    try:
        checkpoint = open_checkpoint(root)
    except CheckpointError:
        return
    for name, info in checkpoint.tensors.items():
        try:
            tensor = read_tensor(checkpoint, name, Files(checkpoint.root))
        except CheckpointError:
            continue
        assert tuple(tensor.shape) == info.shape


def mutations(content: bytes, number: int, seed: int) -> Iterator[bytes]:
    """The content with one to four changes each, the same ones for the same seed."""
    chance = random.Random(seed)
    interesting = [
        b"\xff" * 4,
        b"\0" * 8,
        b"\xff" * 8,
        b"\x7f",
        b"\x80",
        b"\x01\0\0\0",
        b"PK\x03\x04",
        b".",
        b"(",
    ]
    for _ in range(number):
        changed = bytearray(content)
        for _ in range(chance.choice([1, 1, 2, 4])):
            at = chance.randrange(len(changed))
            match chance.randrange(6):
                case 0:
                    changed[at] ^= 1 << chance.randrange(8)
                case 1:
                    changed[at] = chance.randrange(256)
                case 2:
                    del changed[at : at + chance.randrange(1, 9)]
                case 3:
                    changed[at:at] = chance.choice(interesting)
                case 4:
                    piece = chance.choice(interesting)
                    changed[at : at + len(piece)] = piece
                case _:
                    other = chance.randrange(len(changed))
                    changed[at:at] = changed[other : other + chance.randrange(1, 64)]
            changed = changed or bytearray(b"\0")
        yield bytes(changed)


FILES: list[tuple[Write, str]] = [
    (write_safetensors, "model.safetensors"),
    (write_sharded_safetensors, "model.safetensors.index.json"),
    (write_torch_file, "pytorch_model.bin"),
    (write_nanogpt_file, "ckpt.pt"),
    (write_sharded_torch_files, "pytorch_model.bin.index.json"),
    (write_dcp_grid, ".metadata"),
    (write_dcp, "__0_0.distcp"),
]


@rounds
@pytest.mark.parametrize(("write", "name"), FILES, ids=[name for _, name in FILES])
def test_a_changed_file_gives_an_error_or_its_tensors(
    tmp_path: Path, write: Write, name: str, number: int
) -> None:
    write(tmp_path, WEIGHTS)
    original = (tmp_path / name).read_bytes()
    for index, content in enumerate(mutations(original, number, seed=number)):
        (tmp_path / name).write_bytes(content)
        start = time.process_time()
        try:
            read_whatever_it_is(tmp_path)
        except Exception as error:
            raise AssertionError(f"mutation {index}: {content!r}") from error
        assert time.process_time() - start < MAX_SECONDS, index


@rounds
def test_a_changed_directory_of_an_archive_gives_an_error_or_its_tensors(tmp_path: Path, number: int) -> None:
    """Most of an archive is data; here only the records at its end change."""
    write_torch_file(tmp_path, WEIGHTS)
    original = (tmp_path / "pytorch_model.bin").read_bytes()
    at = original.index(b"PK\x01\x02")
    for content in mutations(original[at:], number, seed=number + 1):
        (tmp_path / "pytorch_model.bin").write_bytes(original[:at] + content)
        read_whatever_it_is(tmp_path)


@rounds
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_changed_pickle_gives_an_error_or_a_value(tmp_path: Path, number: int, protocol: int) -> None:
    write_dcp_grid(tmp_path, WEIGHTS)
    metadata = pickle.loads((tmp_path / ".metadata").read_bytes())
    for content in mutations(pickle.dumps(metadata, protocol), number, seed=protocol):
        try:
            load(content, where="test", reducers=REDUCERS)
        except CheckpointError:
            continue

"""Names and links that lead out of the checkpoint, and things in place of files."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from foreshock.daemon.errors import CheckpointError, CorruptCheckpoint, IncompleteCheckpoint
from tests.hostile.guard import Guard
from tests.writers.dcp_chunks import ChunkWriter
from tests.writers.layout import Layout
from tests.writers.layouts import LAYOUTS
from tests.writers.opening import files_below
from tests.writers.weights import sample_weights

SECRET = b"nothing of this may ever be opened"

NAMES: dict[str, type[CheckpointError]] = {
    "../../etc/passwd": CorruptCheckpoint,
    "../outside": CorruptCheckpoint,
    "/etc/passwd": CorruptCheckpoint,
    "{outside}": CorruptCheckpoint,
    "a\0b": CorruptCheckpoint,
    "x" * 10_000: CorruptCheckpoint,
    "x" * 300: CorruptCheckpoint,
    "": CorruptCheckpoint,
    "..": CorruptCheckpoint,
    "sub/../../outside": CorruptCheckpoint,
    "nowhere": IncompleteCheckpoint,
    "~/x": IncompleteCheckpoint,
    "http://host/x": IncompleteCheckpoint,
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "outside").write_bytes(SECRET)
    inside = tmp_path / "checkpoint"
    inside.mkdir()
    return inside


@pytest.fixture(params=LAYOUTS, ids=str)
def layout(request: pytest.FixtureRequest) -> Layout:
    chosen: Layout = request.param
    return chosen


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name)[:30])
@pytest.mark.parametrize("index", ["model.safetensors.index.json", "pytorch_model.bin.index.json"])
def test_a_shard_by_a_name_that_leads_elsewhere(guard: Guard, root: Path, index: str, name: str) -> None:
    file = name.format(outside=root.parent / "outside")
    (root / index).write_text(json.dumps({"weight_map": {"w": file}}))
    outcome = guard.read_within_limits(root)
    assert outcome.kind is NAMES[name]
    assert len(outcome.message) < 600


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name)[:30])
def test_a_chunk_by_a_name_that_leads_elsewhere(guard: Guard, root: Path, name: str) -> None:
    writer = ChunkWriter(num_files=1)
    writer.add("w", torch.ones(2), (1,))
    next(iter(writer.storage.values())).relative_path = name.format(outside=root.parent / "outside")
    assert guard.read_within_limits(writer.write(root)).kind is NAMES[name]


def test_a_chunk_in_a_directory_below_is_read(guard: Guard, root: Path) -> None:
    writer = ChunkWriter(num_files=1)
    writer.add("w", torch.ones(2), (1,))
    (info,) = writer.storage.values()
    info.relative_path = "data/__0_0.distcp"
    (root / "data").mkdir()
    writer.shards = {"data/__0_0.distcp": writer.shards["__0_0.distcp"]}
    outcome = guard.read_within_limits(writer.write(root))
    assert (outcome.kind, outcome.tensors) == (None, 1)


def link_out(file: Path, outside: Path) -> None:
    file.rename(outside / file.name)
    file.symlink_to(os.path.relpath(outside / file.name, file.parent))


def link_out_absolutely(file: Path, outside: Path) -> None:
    file.rename(outside / file.name)
    file.symlink_to(outside / file.name)


def link_in_a_circle(file: Path, outside: Path) -> None:
    file.unlink()
    file.symlink_to(file.name)


def fifo(file: Path, outside: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def directory(file: Path, outside: Path) -> None:
    file.unlink()
    file.mkdir()


def device(file: Path, outside: Path) -> None:
    file.unlink()
    os.mknod(file, 0o600 | stat.S_IFCHR, os.makedev(1, 5))


def endless(file: Path, outside: Path) -> None:
    file.unlink()
    file.symlink_to("/dev/zero")


Swap = Callable[[Path, Path], None]


@pytest.mark.parametrize(
    "swap", [link_out, link_out_absolutely, link_in_a_circle, fifo, directory, device, endless]
)
def test_something_else_in_place_of_a_file(guard: Guard, layout: Layout, root: Path, swap: Swap) -> None:
    if swap is device and os.geteuid() != 0:
        pytest.skip("only root can make a device")
    layout.write(root, sample_weights())
    for file in [root / name for name in files_below(root)]:
        kept = file.read_bytes()
        swap(file, root.parent)
        outcome = guard.read_within_limits(root)
        assert outcome.kind is CorruptCheckpoint, file.name
        assert outcome.wall_seconds < 5
        if file.is_dir():
            file.rmdir()
        else:
            file.unlink()
        file.write_bytes(kept)


def test_a_link_to_nothing_is_a_file_that_is_still_to_come(guard: Guard, layout: Layout, root: Path) -> None:
    layout.write(root, sample_weights())
    for file in [root / name for name in files_below(root)]:
        kept = file.read_bytes()
        file.unlink()
        file.symlink_to("nowhere")
        kind = guard.read_within_limits(root).kind
        assert kind is not None
        assert kind.__name__ in {"IncompleteCheckpoint", "VanishedCheckpoint"}
        file.unlink()
        file.write_bytes(kept)


def test_links_that_stay_inside_are_followed(guard: Guard, layout: Layout, root: Path) -> None:
    layout.write(root, {"w": torch.ones(4), "v": torch.ones(2)})
    (root / "blobs").mkdir()
    for file in [root / name for name in files_below(root)]:
        file.rename(root / "blobs" / file.name)
        file.symlink_to(Path(os.path.relpath(root, file.parent)) / f"blobs/../blobs/{file.name}")
    outcome = guard.read_within_limits(root)
    assert outcome.kind is None
    assert outcome.tensors >= 2

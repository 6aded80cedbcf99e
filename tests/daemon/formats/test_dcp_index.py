"""The index of DCP, with one thing wrong at a time."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    MetadataIndex,
    TensorStorageMetadata,
)

from foreshock.daemon.errors import (
    CheckpointError,
    CorruptCheckpoint,
    IncompleteCheckpoint,
    UnsupportedCheckpoint,
)
from foreshock.daemon.formats import open_checkpoint
from foreshock.daemon.formats.base import MAX_NAME_BYTES
from foreshock.daemon.formats.files import Files
from foreshock.daemon.formats.reading import read_tensor
from tests.writers.dcp_chunks import ChunkWriter, saved
from tests.writers.opening import open_counting

W = MetadataIndex("w", torch.Size((0, 0)))


def chunk(start: tuple[int, ...], shape: tuple[int, ...]) -> ChunkStorageMetadata:
    return ChunkStorageMetadata(torch.Size(start), torch.Size(shape))


def writer_of(pieces: tuple[int, int] = (2, 1)) -> ChunkWriter:
    writer = ChunkWriter(num_files=1)
    writer.add("w", torch.arange(8.0).reshape(4, 2), pieces)
    return writer


def set_storage(**values: Any) -> Callable[[ChunkWriter], None]:
    def change(writer: ChunkWriter) -> None:
        for name, value in values.items():
            setattr(writer.storage[W], name, value)

    return change


def set_declared(**values: Any) -> Callable[[ChunkWriter], None]:
    def change(writer: ChunkWriter) -> None:
        for name, value in values.items():
            setattr(writer.declared["w"], name, value)

    return change


def rename(name: Any) -> Callable[[ChunkWriter], None]:
    def change(writer: ChunkWriter) -> None:
        writer.declared = {name: writer.declared["w"]}

    return change


def share(writer: ChunkWriter) -> None:
    for start in ((0, 0), (2, 0)):
        index = MetadataIndex("w", torch.Size(start))
        writer.storage[MetadataIndex("z", torch.Size(start))] = writer.storage[index]
    writer.declared["z"] = TensorStorageMetadata(
        writer.declared["w"].properties, torch.Size((4, 2)), writer.declared["w"].chunks
    )


def lose_storage(writer: ChunkWriter) -> None:
    del writer.storage[W]


def odd_key(writer: ChunkWriter) -> None:
    writer.storage["w"] = writer.storage[W]  # type: ignore[index]


def odd_value(writer: ChunkWriter) -> None:
    writer.storage[W] = "w"  # type: ignore[assignment]


FAULTS: list[tuple[str, Callable[[ChunkWriter], None], type[CheckpointError], str]] = [
    ("shard missing", set_storage(relative_path="gone.distcp"), IncompleteCheckpoint, "names it"),
    ("shard short", set_storage(length=10_000_000), IncompleteCheckpoint, "needs 10000000"),
    ("offset far", set_storage(offset=1 << 62), IncompleteCheckpoint, "needs"),
    ("offset huge", set_storage(offset=1 << 70), CorruptCheckpoint, "no sound place"),
    ("offset absurd", set_storage(offset=10**5000), CorruptCheckpoint, "no sound place"),
    ("offset negative", set_storage(offset=-1), CorruptCheckpoint, "no sound place"),
    ("length text", set_storage(length="1"), CorruptCheckpoint, "no sound place"),
    ("path up", set_storage(relative_path="../../../etc/passwd"), CorruptCheckpoint, "leads outside"),
    ("path absolute", set_storage(relative_path="/etc/passwd"), CorruptCheckpoint, "leads outside"),
    ("path none", set_storage(relative_path=None), CorruptCheckpoint, "not a file name"),
    ("path directory", set_storage(relative_path="."), CorruptCheckpoint, "not a regular file"),
    ("compressed", set_storage(transform_descriptors=["zstd"]), UnsupportedCheckpoint, "transformation"),
    ("storage lost", lose_storage, CorruptCheckpoint, r"'w' at \(0, 0\) lies nowhere"),
    ("odd key", odd_key, CorruptCheckpoint, "something that is no chunk"),
    ("odd value", odd_value, CorruptCheckpoint, "something that is no chunk"),
    ("hole", set_declared(chunks=[chunk((0, 0), (2, 2))]), CorruptCheckpoint, "a hole or overlap"),
    (
        "overlap",
        set_declared(chunks=[chunk((0, 0), (2, 2)), chunk((2, 0), (2, 2)), chunk((2, 0), (1, 1))]),
        CorruptCheckpoint,
        "a hole or overlap",
    ),
    ("outside", set_declared(chunks=[chunk((0, 0), (5, 2))]), CorruptCheckpoint, "outside of"),
    ("rank", set_declared(chunks=[chunk((0,), (4,))]), CorruptCheckpoint, "outside of"),
    ("no chunks", set_declared(chunks=[]), CorruptCheckpoint, "a hole or overlap"),
    ("chunks none", set_declared(chunks=None), CorruptCheckpoint, "no chunks of its own"),
    ("chunks number", set_declared(chunks=7), CorruptCheckpoint, "no chunks of its own"),
    ("chunks numbers", set_declared(chunks=[7]), CorruptCheckpoint, "outside of"),
    ("chunks shared", share, CorruptCheckpoint, "no chunks of its own"),
    ("size text", set_declared(size="42"), CorruptCheckpoint, "impossible shape"),
    ("size huge", set_declared(size=(1 << 60, 1 << 60)), CorruptCheckpoint, "claims more than"),
    ("size deep", set_declared(size=(1,) * 9), UnsupportedCheckpoint, "9 dimensions"),
    ("no properties", set_declared(properties=None), CorruptCheckpoint, "no dtype"),
    ("other properties", set_declared(properties=SimpleNamespace(x=1)), CorruptCheckpoint, "no dtype"),
    ("empty properties", set_declared(properties=SimpleNamespace()), CorruptCheckpoint, "no dtype"),
    ("name number", rename(7), CorruptCheckpoint, "cannot be the name"),
    ("name tuple", rename(("w",)), CorruptCheckpoint, "cannot be the name"),
    ("name long", rename("w" * (MAX_NAME_BYTES + 1)), CorruptCheckpoint, "cannot be the name"),
    ("name nul", rename("w\0"), CorruptCheckpoint, "cannot be the name"),
]


@pytest.mark.parametrize(
    ("change", "kind", "reason"), [fault[1:] for fault in FAULTS], ids=[fault[0] for fault in FAULTS]
)
def test_a_fault_in_the_index_is_named(
    tmp_path: Path, change: Callable[[ChunkWriter], None], kind: type[CheckpointError], reason: str
) -> None:
    writer = writer_of()
    change(writer)
    with pytest.raises(CheckpointError, match=reason) as raised:
        open_checkpoint(writer.write(tmp_path))
    assert raised.type is kind
    assert len(str(raised.value)) < 600


@pytest.mark.parametrize("content", [None, 7, {"state_dict_metadata": {}}, [], torch.Size((1,)), ("a", "b")])
def test_an_index_of_another_kind_is_corrupt(tmp_path: Path, content: Any) -> None:
    (tmp_path / ".metadata").write_bytes(pickle.dumps(content))
    with pytest.raises(CorruptCheckpoint, match="this is not a DCP index"):
        open_checkpoint(tmp_path)


def test_names_of_several_kinds_beside_the_tensors_do_no_harm(tmp_path: Path) -> None:
    writer = writer_of()
    writer.declared = {7: object, ("a", 1): None, **writer.declared, None: [1]}
    assert list(open_checkpoint(writer.write(tmp_path)).tensors) == ["w"]


def test_a_tensor_cut_along_too_many_dimensions_is_refused(tmp_path: Path) -> None:
    writer = ChunkWriter(num_files=1)
    writer.add("w", torch.zeros(2, 2, 2, 2, 2), (2, 2, 2, 2, 2))
    with pytest.raises(UnsupportedCheckpoint, match="cut along too many dimensions"):
        open_checkpoint(writer.write(tmp_path))


def test_a_chunk_that_is_no_tensor_is_corrupt(tmp_path: Path) -> None:
    writer = writer_of((1, 1))
    writer.shards["__0_0.distcp"] = bytearray(saved({"a": 1}))
    writer.storage[W] = _StorageInfo("__0_0.distcp", 0, len(writer.shards["__0_0.distcp"]))
    checkpoint = open_checkpoint(writer.write(tmp_path))
    with pytest.raises(CorruptCheckpoint, match="the chunk of 'w' is not a tensor"):
        read_tensor(checkpoint, "w", Files(tmp_path))


@pytest.mark.parametrize("name", ["step", "train_state.step", "global_step", "iteration", "iter_num"])
def test_the_step_is_found_where_trainers_put_it(tmp_path: Path, name: str) -> None:
    writer = writer_of()
    writer.add_object(name, 17)
    writer.add_object("optimizer.state.w.step", 16)
    writer.add_object("dataloader", {"position": 3})
    assert open_checkpoint(writer.write(tmp_path)).metadata[name.rsplit(".", 1)[-1]] == 17


def test_a_step_that_is_no_number_is_left_out(tmp_path: Path) -> None:
    writer = writer_of()
    writer.add_object("step", [1, 2])
    writer.add_object("iteration", torch.tensor(3))
    assert open_checkpoint(writer.write(tmp_path)).metadata == {}


def test_many_entries_named_step_are_not_all_read(tmp_path: Path) -> None:
    writer = writer_of()
    for index in range(200):
        writer.add_object(f"optimizer.{index}.step", index)
    writer.write(tmp_path)
    total = sum(path.stat().st_size for path in tmp_path.glob("*.distcp"))
    checkpoint, files = open_counting(tmp_path)
    assert checkpoint.metadata == {"step": 0}
    assert files.bytes_read < (tmp_path / ".metadata").stat().st_size + total / 20


def test_an_index_of_torch_before_2_1_is_read(tmp_path: Path) -> None:
    """Its tensor properties were pickled as a dictionary of their fields."""

    writer = writer_of()
    writer.declared["w"].properties = SimpleNamespace(dtype=torch.float32)
    checkpoint = open_checkpoint(writer.write(tmp_path))
    assert checkpoint.tensors["w"].dtype == "float32"

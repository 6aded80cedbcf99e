"""Each of these files gives one of our errors, in two seconds and 64 MiB at most."""

from __future__ import annotations

import pickle
import struct
import time
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex

from foreshock.daemon.errors import CorruptCheckpoint, UnsupportedCheckpoint
from foreshock.daemon.formats import open_checkpoint
from tests.hostile.bombs import HEADERS, PICKLES, laughs, pickle_bomb, write_torch
from tests.hostile.guard import Guard
from tests.writers.dcp_chunks import ChunkWriter
from tests.writers.raw_pickle import integers, mapping, program, recall, remember, tensor, text
from tests.writers.raw_safetensors import entry, file_bytes
from tests.writers.raw_zip import RawMember, torch_archive


@pytest.mark.parametrize("name", PICKLES)
def test_a_pickle_bomb_in_a_weight_file(guard: Guard, tmp_path: Path, name: str) -> None:
    write_torch(tmp_path / "model.pt", pickle_bomb(name))
    outcome = guard.read_within_limits(tmp_path)
    assert outcome.kind in {CorruptCheckpoint, UnsupportedCheckpoint}
    assert len(outcome.message) < 1000


@pytest.mark.parametrize("name", PICKLES)
def test_a_pickle_bomb_as_index(guard: Guard, tmp_path: Path, name: str) -> None:
    (tmp_path / ".metadata").write_bytes(pickle_bomb(name))
    outcome = guard.read_within_limits(tmp_path)
    assert outcome.kind is CorruptCheckpoint
    assert len(outcome.message) < 1000


FIELDS = ("fqn", "relative_path", "offset", "size", "offsets", "chunks", "dtype", "key")
QUICK = ("laughs", "laughs in mappings", "deep tuple", "huge integer as text", "a list in itself")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in PICKLES]
)
@pytest.mark.parametrize("field", FIELDS)
def test_a_pickle_bomb_in_a_field_of_the_index(guard: Guard, tmp_path: Path, name: str, field: str) -> None:
    """Whatever stands where the index should have a name, a number or a list."""
    writer = ChunkWriter(num_files=1)
    writer.add("w", torch.ones(4, 2), (1, 1))
    writer.write(tmp_path)
    placeholder = "find me"
    index = MetadataIndex("w", torch.Size((0, 0)))
    info, declared = writer.storage[index], writer.declared["w"]
    match field:
        case "fqn":
            writer.storage = {MetadataIndex(placeholder, torch.Size((0, 0))): info}
        case "relative_path":
            info.relative_path = placeholder
        case "offset":
            info.offset = placeholder  # type: ignore[assignment]
        case "size":
            declared.size = placeholder
        case "offsets":
            declared.chunks = [ChunkStorageMetadata(placeholder, torch.Size((4, 2)))]  # type: ignore[arg-type]
        case "chunks":
            declared.chunks = placeholder
        case "dtype":
            declared.properties = placeholder
        case "key":
            writer.declared = {placeholder: declared}
    data = pickle.dumps(writer.metadata(), protocol=2)
    assert data.count(text(placeholder)) == 1
    (tmp_path / ".metadata").write_bytes(data.replace(text(placeholder), PICKLES[name]()))
    outcome = guard.read_within_limits(tmp_path)
    assert outcome.kind in {CorruptCheckpoint, UnsupportedCheckpoint}
    assert len(outcome.message) < 1000


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_bomb(guard: Guard, tmp_path: Path, name: str) -> None:
    (tmp_path / "model.safetensors").write_bytes(HEADERS[name]())
    outcome = guard.read_within_limits(tmp_path)
    assert outcome.kind is not None
    assert len(outcome.message) < 1000


@pytest.mark.parametrize(
    "name", ["10k lists", "10k objects", "a million open lists", "a long integer", "empty lists"]
)
@pytest.mark.parametrize("index", ["model.safetensors.index.json", "pytorch_model.bin.index.json"])
def test_an_index_bomb(guard: Guard, tmp_path: Path, name: str, index: str) -> None:
    (tmp_path / index).write_bytes(HEADERS[name]()[8:])
    assert guard.read_within_limits(tmp_path).kind is not None


def test_shared_containers_of_tensors_are_read_once(guard: Guard, tmp_path: Path) -> None:
    leaf = tensor(integers(4), integers(1))
    write_torch(tmp_path / "model.pt", program(laughs(leaf, 11, mappings=True)))
    outcome = guard.read_within_limits(tmp_path)
    assert (outcome.kind, outcome.tensors) == (None, 10)


def test_a_view_that_repeats_a_few_bytes_a_trillion_times(guard: Guard, tmp_path: Path) -> None:
    for strides in (integers(0, 0), integers(1, 1), integers(0, 1)):
        shape = integers(1 << 20, 1 << 20)
        pickled = program(mapping((text("w"), tensor(shape, strides, elements=1 << 21))))
        content = torch_archive(pickled, {"0": bytes(4 << 21)}).to_bytes()
        (tmp_path / "model.pt").write_bytes(content)
        assert guard.read_within_limits(tmp_path).kind is UnsupportedCheckpoint


def test_a_million_members_are_refused_unseen(guard: Guard, tmp_path: Path) -> None:
    count, size = 1_000_000, 60_000_000
    with (tmp_path / "model.pt").open("wb") as file:
        file.truncate(size)  # what the directory says does not matter
        file.seek(size)
        file.write(struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 20, 20, 0, 0, count, count, size, 0))
        file.write(struct.pack("<4sLQL", b"PK\x06\x07", 0, size, 1))
        file.write(struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, size, 0, 0))
    outcome = guard.read_within_limits(tmp_path)
    assert outcome.kind is UnsupportedCheckpoint
    assert "1000000 zip members" in outcome.message


def test_a_zip_bomb_is_refused_packed(guard: Guard, tmp_path: Path) -> None:
    archive = torch_archive(
        program(mapping((text("w"), tensor(integers(1 << 29), integers(1), elements=1 << 29))))
    )
    archive.members.append(
        RawMember("archive/data/0", bytes(2 << 20), method=8, size=1 << 31, packed=2 << 20)
    )
    (tmp_path / "model.pt").write_bytes(archive.to_bytes())
    assert guard.read_within_limits(tmp_path).kind is UnsupportedCheckpoint


def test_a_tensor_of_a_tebibyte_of_zeros_that_take_no_space(guard: Guard, tmp_path: Path) -> None:
    size = 1 << 40
    header = file_bytes({"w": entry("F32", [size // 4], [0, size])})
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.write(header)
        file.truncate(len(header) + size)
    outcome = guard.read_within_limits(tmp_path)
    assert outcome.kind is UnsupportedCheckpoint
    assert "more memory than there is" in outcome.message


def test_many_steps_of_which_each_is_slow(guard: Guard, tmp_path: Path) -> None:
    """A thousand entries that might hold the step, all pointing at one pickle that takes a while."""
    writer = ChunkWriter(num_files=1)
    writer.add("w", torch.ones(4, 2), (1, 1))
    slow = torch_archive(program(b"N" * 60_000)).to_bytes()
    shard = writer.shards["__0_0.distcp"]
    start = len(shard)
    shard += slow
    for number in range(1000):
        index = MetadataIndex(f"optimizer.{number}.step")
        writer.storage[index] = type(writer.storage[MetadataIndex("w", torch.Size((0, 0)))])(
            "__0_0.distcp", start, len(slow)
        )
    outcome = guard.read_within_limits(writer.write(tmp_path))
    assert (outcome.kind, outcome.tensors) == (None, 1)


def test_bricks_that_all_start_in_the_first_row(guard: Guard, tmp_path: Path) -> None:
    """Chunks of which every two would have to be compared."""
    size = torch.Size
    writer = ChunkWriter(num_files=1)
    writer.add("w", torch.ones(1, 8000), (1, 1))
    info = next(iter(writer.storage.values()))
    writer.declared["w"].chunks = [ChunkStorageMetadata(size((0, i)), size((1, 1))) for i in range(8000)]
    writer.storage = {MetadataIndex("w", size((0, i))): info for i in range(8000)}
    outcome = guard.read_within_limits(writer.write(tmp_path))
    assert outcome.kind is CorruptCheckpoint
    assert "the index says" in outcome.message


@pytest.mark.slow
def test_a_legal_header_of_90_megabytes_is_read(guard: Guard, tmp_path: Path) -> None:
    names = [
        f"model.layers.{i // 1000}.mlp.experts.{i % 1000}.some_projection.weight" for i in range(600_000)
    ]
    entries = b",".join(
        b'"%s":{"dtype":"BF16","shape":[1],"data_offsets":[%d,%d]}' % (name.encode(), 2 * i, 2 * i + 2)
        for i, name in enumerate(names)
    )
    header = b"{" + entries + b"}"
    header += b" " * (90_000_000 - len(header))
    path = tmp_path / "model.safetensors"
    path.write_bytes(file_bytes(header, bytes(2 * len(names))))
    start = time.perf_counter()
    assert len(open_checkpoint(tmp_path).tensors) == len(names)
    assert time.perf_counter() - start < 60
    assert path.stat().st_size > 90_000_000


def test_a_memo_of_a_memo(guard: Guard, tmp_path: Path) -> None:
    write_torch(tmp_path / "model.pt", program(remember(0), recall(0)))
    assert guard.read_within_limits(tmp_path).kind is CorruptCheckpoint

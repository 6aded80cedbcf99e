"""No byte of a checkpoint is ever imported, called or executed, wherever the pickle lies."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.metadata import MetadataIndex

from tests.hostile.guard import Guard
from tests.hostile.payloads import payloads
from tests.writers.dcp_chunks import ChunkWriter
from tests.writers.raw_pickle import integers, mapping, program, tensor, text
from tests.writers.raw_zip import torch_archive

NAMES = list(payloads(""))


def alone(payload: bytes) -> bytes:
    return torch_archive(program(payload)).to_bytes()


def beside_weights(payload: bytes) -> bytes:
    content = mapping((text("w"), tensor(integers(4), integers(1))), (text("step"), payload))
    return torch_archive(program(content), {"0": bytes(16)}).to_bytes()


def as_weight_file(name: str, content: Callable[[bytes], bytes]) -> Callable[[Path, bytes], None]:
    def write(root: Path, payload: bytes) -> None:
        (root / name).write_bytes(content(payload))

    return write


def as_index(root: Path, payload: bytes) -> None:
    (root / ".metadata").write_bytes(program(payload))


def sound_writer() -> ChunkWriter:
    writer = ChunkWriter(num_files=1)
    writer.add("w", torch.ones(4, 2), (2, 1))
    return writer


def inside_index(root: Path, payload: bytes) -> None:
    """A sound index, which keeps the payload in a field that nobody needs."""
    writer = sound_writer()
    writer.write(root)
    placeholder = "find me"
    metadata = writer.metadata()
    metadata.planner_data = placeholder
    data = pickle.dumps(metadata, protocol=2)
    assert data.count(text(placeholder)) == 1
    (root / ".metadata").write_bytes(data.replace(text(placeholder), payload))


def as_step_entry(root: Path, payload: bytes) -> None:
    writer = sound_writer()
    writer.add_object("step", 1)
    replace_chunk(writer, MetadataIndex("step"), alone(payload))
    writer.write(root)


def as_chunk(root: Path, payload: bytes) -> None:
    writer = sound_writer()
    replace_chunk(writer, MetadataIndex("w", torch.Size((0, 0))), alone(payload))
    writer.write(root)


def replace_chunk(writer: ChunkWriter, index: MetadataIndex, data: bytes) -> None:
    info = writer.storage[index]
    shard = writer.shards[info.relative_path]
    info.offset, info.length = len(shard), len(data)
    shard += data


PLACES: dict[str, Callable[[Path, bytes], None]] = {
    "pt": as_weight_file("model.pt", alone),
    "pt-beside-weights": as_weight_file("model.pt", beside_weights),
    "pth": as_weight_file("model.pth", beside_weights),
    "bin": as_weight_file("pytorch_model.bin", alone),
    "ckpt": as_weight_file("last.ckpt", beside_weights),
    "raw-pickle": as_weight_file("model.pt", program),
    "metadata": as_index,
    "inside-metadata": inside_index,
    "step-entry": as_step_entry,
    "chunk": as_chunk,
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", NAMES)
def test_nothing_runs(guard: Guard, tmp_path: Path, name: str, place: str) -> None:
    root, marker = tmp_path / "checkpoint", tmp_path / "ran"
    root.mkdir()
    PLACES[place](root, payloads(f"touch {marker}")[name])
    outcome = guard.read_within_limits(root)
    assert outcome.kind is not None or outcome.tensors == 1
    assert not marker.exists()


NEED_MORE_THAN_PICKLE = {
    "os.execl",  # runs, and ends the process
    "NEWOBJ",  # calls `__new__` alone, which starts no process for this class
    "NEWOBJ_EX",
    "__builtin__.eval",  # is known by that name before protocol 3 only
    "EXT1",  # need an entry in the registry of extensions
    "EXT4",
    "torch.hub",  # need torch
    "rebuild_from_type",
    "pydoc",  # needs a terminal
    "list that runs when appended to",  # need a class with such a method
    "mapping that runs when set",
}

RUN_THEM = """
import contextlib, pickle, pickletools, sys
for path in sys.argv[1:]:
    with contextlib.suppress(BaseException), open(path, "rb") as file:
        unpickler = pickle.Unpickler(file)
        unpickler.persistent_load = lambda _: None
        unpickler.load()
"""


def test_the_payloads_do_run_where_pickle_loads_them(tmp_path: Path) -> None:
    """Otherwise the test above would prove nothing."""
    names = [name for name in NAMES if name not in NEED_MORE_THAN_PICKLE]
    files = []
    for index, name in enumerate(names):
        path = tmp_path / f"{index}.pkl"
        path.write_bytes(program(payloads(f"touch {tmp_path / str(index)}.ran")[name]))
        files.append(str(path))
    subprocess.run([sys.executable, "-c", RUN_THEM, *files], check=True, timeout=60, stdin=subprocess.DEVNULL)
    ran = {name for index, name in enumerate(names) if (tmp_path / f"{index}.ran").exists()}
    assert ran == set(names)

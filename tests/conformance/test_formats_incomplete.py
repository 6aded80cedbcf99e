"""Half-written and damaged checkpoints: which of the two it is, and never a number out of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch

from foreshock.daemon.errors import (
    CheckpointError,
    CorruptCheckpoint,
    IncompleteCheckpoint,
    UnsupportedCheckpoint,
)
from foreshock.daemon.formats import open_checkpoint
from tests.writers import raw_safetensors
from tests.writers.dcp_chunks import ChunkWriter
from tests.writers.layout import Layout
from tests.writers.layouts import (
    LAYOUTS,
    SAFETENSORS,
    TORCH,
    Weights,
    write_sharded_safetensors,
    write_sharded_torch_files,
)
from tests.writers.opening import read_everything

Write = Callable[[Path, Weights], None]
sharded = pytest.mark.parametrize("write", [write_sharded_safetensors, write_sharded_torch_files])

CUTS = (0, 1, 4, 8, 20, 100, 0.5, -1)


def put(root: Path, originals: Mapping[str, bytes], **changed: bytes | None) -> Path:
    """The files again, some of them with other content, or left out."""
    for name, content in {**originals, **changed}.items():
        if content is not None:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content)
    return root


def cut_at(content: bytes, cut: float) -> bytes:
    return content[: int(len(content) * cut)] if isinstance(cut, float) else content[:cut]


@pytest.mark.parametrize("cut", CUTS)
def test_a_cut_file_is_waited_for(
    layout: Layout, originals: Mapping[str, bytes], tmp_path: Path, cut: float
) -> None:
    for name, content in originals.items():
        put(tmp_path, originals, **{name: cut_at(content, cut)})
        with pytest.raises(IncompleteCheckpoint, match=str(tmp_path)):
            read_everything(tmp_path)


def test_a_cut_at_any_byte_gives_no_tensor(
    layout: Layout, originals: Mapping[str, bytes], tmp_path: Path
) -> None:
    name = layout.main_file
    content = originals[name]
    for length in range(0, len(content), max(len(content) // 97, 1)):
        put(tmp_path, originals, **{name: content[:length]})
        with pytest.raises((IncompleteCheckpoint, CorruptCheckpoint)):
            read_everything(tmp_path)


def test_an_allocated_file_without_content_is_waited_for(
    layout: Layout, originals: Mapping[str, bytes], tmp_path: Path
) -> None:
    for name, content in originals.items():
        put(tmp_path, originals, **{name: bytes(len(content))})
        with pytest.raises(IncompleteCheckpoint):
            read_everything(tmp_path)


@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS if layout.several_files], ids=str)
def test_a_missing_file_is_waited_for(layout: Layout, originals: Mapping[str, bytes], tmp_path: Path) -> None:
    for name in originals:
        root = tmp_path / f"without-{name.replace('/', '-')}"
        root.mkdir()
        put(root, originals, **{name: None})
        with pytest.raises(IncompleteCheckpoint):
            read_everything(root)


@pytest.mark.parametrize(
    "layout", [layout for layout in LAYOUTS if layout.format in {SAFETENSORS, TORCH}], ids=str
)
def test_bytes_after_the_end_are_corruption(
    layout: Layout, originals: Mapping[str, bytes], tmp_path: Path
) -> None:
    put(tmp_path, originals, **{layout.main_file: originals[layout.main_file] + b"7 bytes"})
    with pytest.raises(CorruptCheckpoint, match="7 bytes follow"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS if "sharded" in layout.name], ids=str)
def test_an_index_that_is_cut_inside_is_waited_for_and_a_wrong_one_is_not(
    layout: Layout, originals: Mapping[str, bytes], tmp_path: Path
) -> None:
    index = next(name for name in originals if name.endswith(".index.json"))
    nested = originals[index].rindex(b"}", 0, -3)
    for content, expected in [
        (originals[index][: nested + 1], IncompleteCheckpoint),
        (b"", IncompleteCheckpoint),
        (originals[index] + b"{", CorruptCheckpoint),
        (b"[]", CorruptCheckpoint),
        (b"{}", CorruptCheckpoint),
        (b'{"weight_map": {}}', CorruptCheckpoint),
        (b'{"weight_map": {"w": 3}}', CorruptCheckpoint),
        (b'{"weight_map": {"w": "a", "w": "b"}}', CorruptCheckpoint),
    ]:
        put(tmp_path, originals, **{index: content})
        with pytest.raises(CheckpointError) as raised:
            open_checkpoint(tmp_path)
        assert raised.type is expected, content[:40]


@sharded
def test_an_index_of_thirty_shards_counts_the_missing_ones(tmp_path: Path, write: Write) -> None:
    write(tmp_path, {"a": torch.ones(2), "b": torch.ones(2)})
    index = next(tmp_path.glob("*.index.json"))
    suffix = "safetensors" if "safetensors" in index.name else "bin"
    weight_map = {f"w{i}": f"model-{i:05d}-of-00030.{suffix}" for i in range(1, 31)}
    index.write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(IncompleteCheckpoint, match="30 of 30 shards are not there"):
        open_checkpoint(tmp_path)


@sharded
def test_what_only_the_shards_name_is_left_out_with_a_note(tmp_path: Path, write: Write) -> None:
    write(tmp_path, {"a": torch.ones(2), "b": torch.ones(2), "c": torch.ones(2)})
    index = next(tmp_path.glob("*.index.json"))
    content = json.loads(index.read_text())
    del content["weight_map"]["c"]
    index.write_text(json.dumps(content))
    checkpoint = open_checkpoint(tmp_path)
    assert list(checkpoint.tensors) == ["a", "b"]
    assert checkpoint.notes == ("1 tensors in the shards are not named by the index",)


@sharded
def test_an_index_that_contradicts_a_shard_is_corrupt(tmp_path: Path, write: Write) -> None:
    write(tmp_path, {"a": torch.ones(2), "b": torch.ones(2)})
    index = next(tmp_path.glob("*.index.json"))
    content = json.loads(index.read_text())
    content["weight_map"]["c"] = content["weight_map"]["a"]
    index.write_text(json.dumps(content))
    with pytest.raises(CorruptCheckpoint, match="holds 'c'; it does not"):
        open_checkpoint(tmp_path)


def test_a_stale_single_file_beside_an_index_is_ignored_with_a_note(tmp_path: Path) -> None:
    write_sharded_safetensors(tmp_path, {"a": torch.ones(2), "b": torch.ones(2)})
    raw_safetensors.write(tmp_path / "model.safetensors", {"old": raw_safetensors.entry(shape=[1])}, bytes(4))
    checkpoint = open_checkpoint(tmp_path)
    assert list(checkpoint.tensors) == ["a", "b"]
    assert "model.safetensors" in checkpoint.notes[0]


def test_a_left_over_temporary_file_is_never_read(layout: Layout, tmp_path: Path) -> None:
    layout.write(tmp_path, {"w": torch.ones(2)})
    (tmp_path / ".tmpAbCdEf").write_bytes((tmp_path / layout.main_file).read_bytes())
    (tmp_path / ".tmpGhIjKl.safetensors").write_bytes(b"half")
    (tmp_path / ".metadata.tmp").write_bytes(b"half")
    assert layout.prefix + "w" in open_checkpoint(tmp_path).tensors


def test_a_directory_of_other_files_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "training_args.bin").write_bytes(b"PK")
    with pytest.raises(UnsupportedCheckpoint, match=r"Looked for: .*safetensors.*\.metadata.*\.pt"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("suffix", ["safetensors", "pt"])
def test_two_files_of_which_either_could_be_meant_are_not_guessed_between(
    tmp_path: Path, suffix: str
) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.{suffix}").write_bytes(b"")
    with pytest.raises(UnsupportedCheckpoint, match="name the one that is meant"):
        open_checkpoint(tmp_path)


def test_a_corrupt_header_is_not_waited_for(tmp_path: Path) -> None:
    raw_safetensors.write(tmp_path / "model.safetensors", {"w": raw_safetensors.entry(shape=[2])}, bytes(4))
    with pytest.raises(CorruptCheckpoint, match=r"'w' of shape \[2\] .* cannot lie at bytes 0 to 4"):
        open_checkpoint(tmp_path)


def test_a_chunk_that_is_not_what_the_index_says_is_corrupt(tmp_path: Path) -> None:
    writer = ChunkWriter(num_files=1)
    writer.add("w", torch.ones(4, 2), (2, 1))
    writer.declared["w"].properties.dtype = torch.float64
    writer.write(tmp_path)
    with pytest.raises(
        CorruptCheckpoint, match=r"the chunk of 'w' is float32 \(2, 2\), the index says float64"
    ):
        read_everything(tmp_path)

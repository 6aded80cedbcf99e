"""Tensors as people really save them with torch.save: tied, viewed, wrapped, or not for reading at all."""

from __future__ import annotations

import argparse
import io
import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from foreshock.daemon.errors import CorruptCheckpoint, UnsupportedCheckpoint
from foreshock.daemon.formats import open_checkpoint
from foreshock.daemon.formats.files import Files
from foreshock.daemon.formats.reading import read_tensor
from tests.writers.raw_pickle import call, integers, mapping, program, storage, tensor, text
from tests.writers.raw_zip import torch_archive
from tests.writers.weights import FLOATS, random_bits, same_bits


def saved_and_read(path: Path, content: Any, name: str, rows: slice | None = None) -> Tensor:
    torch.save(content, path)
    return read_tensor(open_checkpoint(path), name, Files(path.parent), rows)


@contextmanager
def pretended_ranks(world_size: int) -> Iterator[None]:
    """This process as rank 0 of so many, none of which is there."""
    dist.init_process_group("fake", rank=0, world_size=world_size, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


def test_tied_tensors_are_both_named_and_share_their_bytes(tmp_path: Path) -> None:
    weight = random_bits((8, 4), torch.float32, 1)
    torch.save({"embed.weight": weight, "lm_head.weight": weight}, tmp_path / "model.pt")
    checkpoint = open_checkpoint(tmp_path)
    assert list(checkpoint.tensors) == ["embed.weight", "lm_head.weight"]
    assert list(checkpoint.pieces("embed.weight")) == list(checkpoint.pieces("lm_head.weight"))


@pytest.mark.parametrize("dtype", FLOATS.values(), ids=FLOATS)
def test_a_transposed_tensor_is_read_in_its_own_order(tmp_path: Path, dtype: torch.dtype) -> None:
    weight = random_bits((6, 4), dtype, 2).t()
    assert same_bits(saved_and_read(tmp_path / "w.pt", {"w": weight}, "w"), weight)
    assert same_bits(saved_and_read(tmp_path / "w.pt", {"w": weight}, "w", slice(1, 3)), weight[1:3])


@pytest.mark.parametrize(
    "view",
    [
        lambda w: w[2:5],
        lambda w: w[:, 3],
        lambda w: w[::2, 1::3],
        lambda w: w[1:2],
        lambda w: w[:, :1],
        lambda w: w.view(4, 2, 6).permute(2, 0, 1),
        lambda w: w[3:3],
        lambda w: w[5, 5],
        lambda w: w.unsqueeze(0).transpose(0, 1),
    ],
    ids=["rows", "column", "steps", "one row", "one column", "permuted", "empty", "scalar", "size one"],
)
def test_a_view_is_read_as_what_it_shows(tmp_path: Path, view: Any) -> None:
    weight = view(random_bits((8, 6), torch.bfloat16, 3))
    assert same_bits(saved_and_read(tmp_path / "w.pt", {"w": weight}, "w"), weight)


@pytest.mark.parametrize(
    "weight",
    [torch.ones(1, 4).expand(1000, 4), torch.ones(()).expand(5), torch.ones(6).as_strided((4, 3), (1, 1))],
    ids=["rows", "scalar", "overlapping"],
)
def test_a_view_that_repeats_memory_is_refused(tmp_path: Path, weight: Tensor) -> None:
    torch.save({"w": weight}, tmp_path / "w.pt")
    with pytest.raises(UnsupportedCheckpoint, match=r"'w' of shape .* repeats memory"):
        open_checkpoint(tmp_path)


def test_a_view_that_repeats_memory_does_not_hide_the_weights_beside_it(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(2), "mask": torch.ones(1, 4).expand(8, 4)}, tmp_path / "w.pt")
    checkpoint = open_checkpoint(tmp_path)
    assert list(checkpoint.tensors) == ["w"]
    assert "'mask' of shape (8, 4) and strides (0, 1) repeats memory" in checkpoint.notes[0]


def test_a_shard_says_what_it_cannot_give_though_the_index_names_it(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(2), "mask": torch.ones(1, 4).expand(8, 4)}, tmp_path / "1.bin")
    torch.save({"b": torch.ones(2), "s": torch.ones(2, 2).to_sparse()}, tmp_path / "2.bin")
    weight_map = {"a": "1.bin", "mask": "1.bin", "b": "2.bin", "s": "2.bin"}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": weight_map}))
    checkpoint = open_checkpoint(tmp_path)
    assert list(checkpoint.tensors) == ["a", "b"]
    assert len(checkpoint.notes) == 2
    assert "s: a sparse tensor" in checkpoint.notes[1]


def test_parameters_buffers_and_gradients_are_tensors_like_others(tmp_path: Path) -> None:
    parameter = nn.Parameter(random_bits((3, 3), torch.float32, 4))
    with_state = nn.Parameter(random_bits((2, 2), torch.float32, 5))
    with_state.is_expert = True  # type: ignore[attr-defined]
    buffer = nn.Buffer(random_bits((2,), torch.float32, 6))
    content = {"parameter": parameter, "with_state": with_state, "buffer": buffer}
    for name, expected in content.items():
        assert same_bits(saved_and_read(tmp_path / "m.pt", content, name), expected.data)


def test_the_state_of_a_module_keeps_its_version_metadata_out_of_the_way(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(3, 2), nn.LayerNorm(2))
    torch.save(module.state_dict(), tmp_path / "m.pt")
    checkpoint = open_checkpoint(tmp_path)
    assert sorted(checkpoint.tensors) == sorted(module.state_dict())
    assert checkpoint.metadata == {}


def test_one_bare_tensor_has_the_empty_name(tmp_path: Path) -> None:
    weight = random_bits((2, 3), torch.float32, 7)
    assert same_bits(saved_and_read(tmp_path / "w.pt", weight, ""), weight)


def test_a_list_of_state_dicts_is_named_by_position(tmp_path: Path) -> None:
    torch.save([{"w": torch.zeros(2)}, ({"w": torch.ones(2)},)], tmp_path / "w.pt")
    assert list(open_checkpoint(tmp_path).tensors) == ["0.w", "1.0.w"]


def test_a_distributed_tensor_of_one_rank_is_whole(tmp_path: Path) -> None:
    weight = random_bits((6, 4), torch.bfloat16, 8)
    with pretended_ranks(1):
        mesh = init_device_mesh("cpu", (1,))
        read = saved_and_read(tmp_path / "w.pt", {"w": DTensor.from_local(weight, mesh, [Shard(0)])}, "w")
    assert same_bits(read, weight)


def test_a_replicated_distributed_tensor_is_whole(tmp_path: Path) -> None:
    weight = random_bits((6, 4), torch.float32, 9)
    with pretended_ranks(2):
        local = DTensor.from_local(weight, init_device_mesh("cpu", (2,)), [Replicate()], run_check=False)
        assert same_bits(saved_and_read(tmp_path / "w.pt", {"w": local}, "w"), weight)


def test_one_ranks_part_of_a_distributed_tensor_is_refused_by_name(tmp_path: Path) -> None:
    with pretended_ranks(2):
        local = DTensor.from_local(
            torch.ones(3, 4), init_device_mesh("cpu", (2,)), [Shard(0)], run_check=False
        )
        torch.save({"layer.w": local}, tmp_path / "w.pt")
    with pytest.raises(UnsupportedCheckpoint, match=r"layer\.w: one rank's part \(3, 4\) .* shape \(6, 4\)"):
        open_checkpoint(tmp_path)


def test_parts_beside_whole_tensors_become_a_few_notes(tmp_path: Path) -> None:
    with pretended_ranks(2):
        mesh = init_device_mesh("cpu", (2,))
        parts = {
            f"p{i}": DTensor.from_local(torch.ones(3), mesh, [Shard(0)], run_check=False) for i in range(8)
        }
        torch.save({"whole": torch.ones(2), **parts}, tmp_path / "w.pt")
    checkpoint = open_checkpoint(tmp_path)
    assert list(checkpoint.tensors) == ["whole"]
    assert checkpoint.notes[0].startswith("p0: one rank's part")
    assert checkpoint.notes[-1] == "and 3 more tensors that cannot be read"


def sparse() -> Tensor:
    return torch.ones(2, 2).to_sparse()


def meta() -> Tensor:
    return torch.ones(2, 2, device="meta")


def quantized() -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(torch.ones(2, 2), 0.1, 0, torch.qint8)


def nested() -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])


@pytest.mark.parametrize("make", [sparse, meta, quantized, nested])
def test_a_tensor_of_another_kind_is_refused_by_name(tmp_path: Path, make: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.save({"layer.w": make()}, tmp_path / "w.pt")
    with pytest.raises(UnsupportedCheckpoint, match=r"layer\.w: a"):
        open_checkpoint(tmp_path)


def test_two_tensors_under_one_path_are_not_guessed_between(tmp_path: Path) -> None:
    torch.save({"a.b": torch.zeros(1), "a": {"b": torch.ones(1)}}, tmp_path / "w.pt")
    with pytest.raises(UnsupportedCheckpoint, match=r"two tensors have the path 'a\.b'"):
        open_checkpoint(tmp_path)


def test_a_dictionary_saved_twice_is_named_once(tmp_path: Path) -> None:
    weights = {"w": torch.ones(2)}
    torch.save({"model": weights, "ema": {"shadow": weights}}, tmp_path / "w.pt")
    assert list(open_checkpoint(tmp_path).tensors) == ["model.w"]


def test_a_whole_module_is_refused(tmp_path: Path) -> None:
    torch.save(nn.Linear(2, 2), tmp_path / "module.pt")
    with pytest.raises(UnsupportedCheckpoint, match="it holds no tensor"):
        open_checkpoint(tmp_path)


def test_the_format_from_before_zip_is_refused(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(2)}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(UnsupportedCheckpoint, match=r"before 1\.6"):
        open_checkpoint(tmp_path)


def test_a_scripted_module_is_refused(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.script(nn.Linear(2, 2)), tmp_path / "script.pt")
    with pytest.raises(UnsupportedCheckpoint):
        open_checkpoint(tmp_path)


def test_a_file_of_a_big_endian_machine_is_refused(tmp_path: Path) -> None:
    archive = torch_archive(program(mapping((text("w"), tensor(integers(4), integers(1))))), {"0": bytes(16)})
    archive.members[1].data = b"big"
    (tmp_path / "w.pt").write_bytes(archive.to_bytes())
    with pytest.raises(UnsupportedCheckpoint, match="big-endian"):
        open_checkpoint(tmp_path)


def test_a_file_without_a_byte_order_is_little_endian_as_it_was_before_torch_2_1(tmp_path: Path) -> None:
    archive = torch_archive(program(mapping((text("w"), tensor(integers(4), integers(1))))), {"0": bytes(16)})
    del archive.members[1]
    (tmp_path / "w.pt").write_bytes(archive.to_bytes())
    assert torch.equal(read_tensor(open_checkpoint(tmp_path), "w", Files(tmp_path)), torch.zeros(4))


@pytest.mark.parametrize(
    ("shape", "strides", "offset", "reason"),
    [
        (integers(5), integers(1), 0, "reaches to byte 20 of a storage of 16"),
        (integers(2), integers(4), 0, "reaches to byte 20 of a storage of 16"),
        (integers(4), integers(1), 1, "reaches to byte 20 of a storage of 16"),
        (integers(4), integers(-1), 3, "impossible offset, shape or strides"),
        (integers(-4), integers(1), 0, "impossible offset, shape or strides"),
        (integers(4), integers(1), -1, "impossible offset, shape or strides"),
        (integers(1 << 60), integers(1), 0, "claims more than"),
        (integers(1 << 70), integers(1), 0, "an integer of 71 bits"),
        (integers(2, 2), integers(1), 0, "1 strides for the shape"),
        (text("ab"), integers(1, 1), 0, "impossible offset, shape or strides"),
    ],
)  # fmt: skip
def test_a_tensor_beyond_its_storage_is_corrupt(
    tmp_path: Path, shape: bytes, strides: bytes, offset: int, reason: str
) -> None:
    pickled = program(mapping((text("w"), tensor(shape, strides, offset=offset))))
    (tmp_path / "w.pt").write_bytes(torch_archive(pickled, {"0": bytes(16)}).to_bytes())
    with pytest.raises(CorruptCheckpoint, match=reason):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("size", [12, 20, 0])
def test_a_storage_of_another_size_than_claimed_is_corrupt(tmp_path: Path, size: int) -> None:
    pickled = program(mapping((text("w"), tensor(integers(2), integers(1)))))
    (tmp_path / "w.pt").write_bytes(torch_archive(pickled, {"0": bytes(size)}).to_bytes())
    with pytest.raises(CorruptCheckpoint, match=f"claims a storage of 16 bytes, the file holds {size}"):
        open_checkpoint(tmp_path)


def test_a_tensor_without_its_storage_is_corrupt(tmp_path: Path) -> None:
    pickled = program(mapping((text("w"), tensor(integers(4), integers(1), key="7"))))
    (tmp_path / "w.pt").write_bytes(torch_archive(pickled, {"0": bytes(16)}).to_bytes())
    with pytest.raises(CorruptCheckpoint, match="absent storage '7'"):
        open_checkpoint(tmp_path)


def test_a_storage_beside_the_tensors_is_no_tensor(tmp_path: Path) -> None:
    pickled = program(
        mapping((text("raw"), storage("0", 4)), (text("size"), call("torch.Size", integers(3))))
    )
    (tmp_path / "w.pt").write_bytes(torch_archive(pickled, {"0": bytes(16)}).to_bytes())
    with pytest.raises(UnsupportedCheckpoint, match="it holds no tensor"):
        open_checkpoint(tmp_path)


def test_plain_values_beside_the_tensors_become_metadata(tmp_path: Path) -> None:
    content = {
        "w": torch.ones(1),
        "iter_num": 7,
        "model_args": {"n_layer": 2, "bias": False, "dropout": 0.0, "name": "x", "vocab_size": None},
        "epoch": torch.tensor(3),
        "history": [1, 2],
        "empty": {},
        3: "by number",
    }
    torch.save(content, tmp_path / "w.pt")
    assert open_checkpoint(tmp_path).metadata == {
        "iter_num": 7,
        "model_args": {"n_layer": 2, "bias": False, "dropout": 0.0, "name": "x", "vocab_size": None},
        "3": "by number",
    }


def test_the_arguments_of_a_namespace_become_metadata(tmp_path: Path) -> None:
    args = argparse.Namespace(num_layers=4, params_dtype=torch.bfloat16)
    torch.save({"w": torch.ones(1), "args": args}, tmp_path / "w.pt")
    assert open_checkpoint(tmp_path).metadata == {"args": {"num_layers": 4}}


def test_a_file_written_through_a_buffer_reads_the_same(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    weight = random_bits((3,), torch.float16, 1)
    torch.save({"w": weight}, buffer)
    (tmp_path / "w.ckpt").write_bytes(buffer.getvalue())
    assert same_bits(read_tensor(open_checkpoint(tmp_path), "w", Files(tmp_path)), weight)

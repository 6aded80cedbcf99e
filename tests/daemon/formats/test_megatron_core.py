"""Megatron-Core: layers apart, masters preferred, the marker, and what is refused."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from foreshock.daemon.errors import IncompleteCheckpoint, UnsupportedCheckpoint
from foreshock.daemon.formats import open_checkpoint
from foreshock.daemon.formats.files import Files
from foreshock.daemon.formats.reading import read_tensor
from foreshock.daemon.roles.model_config import ModelConfig
from tests.writers.dcp_chunks import ChunkWriter
from tests.writers.weights import random_bits, same_bits

QKV = "decoder.layers.self_attention.linear_qkv.weight"
ROUTER = "decoder.layers.mlp.router.weight"
ARGS = argparse.Namespace(num_attention_heads=4, num_query_groups=2, group_query_attention=True)
TORCH_DIST = {"sharded_backend": "torch_dist", "sharded_backend_version": 1}


def write(
    root: Path,
    *,
    tensors: dict[str, Tensor],
    marker: dict[str, Any] | None = TORCH_DIST,
    common_file: bool = True,
) -> None:
    """Each layer and each half of its rows is a chunk, as two tensor-parallel ranks save them."""
    writer = ChunkWriter(num_files=2)
    for name, tensor in tensors.items():
        writer.add(name, tensor, (tensor.shape[0], 2, 1)[: tensor.dim()])
    common = {"args": ARGS, "iteration": 30, "checkpoint_version": 3.0}
    if not common_file:
        writer.add_object("common_state/shard_0_1", [common])
    writer.write(root)
    if common_file:
        torch.save(common, root / "common.pt")
    if marker is not None:
        (root / "metadata.json").write_text(json.dumps(marker))


def stacked(dtype: torch.dtype = torch.bfloat16) -> dict[str, Tensor]:
    return {QKV: random_bits((3, 8, 4), dtype, 1), ROUTER: random_bits((3, 2, 4), dtype, 2)}


@pytest.mark.parametrize("common_file", [True, False])
@pytest.mark.parametrize("prefix", ["", "module."])
def test_every_layer_is_read_by_its_own_name(tmp_path: Path, common_file: bool, prefix: str) -> None:
    weights = {prefix + name: tensor for name, tensor in stacked().items()}
    write(tmp_path, tensors=weights, common_file=common_file)

    checkpoint = open_checkpoint(tmp_path)

    assert checkpoint.format == "megatron_core"
    files = Files(tmp_path)
    for key, tensor in weights.items():
        for layer in range(3):
            name = key.replace("layers.", f"layers.{layer}.")
            assert same_bits(read_tensor(checkpoint, name, files), tensor[layer]), name
    assert len(checkpoint.tensors) == 6
    assert checkpoint.metadata["iteration"] == 30
    config = ModelConfig.from_metadata(checkpoint.metadata, "there")
    assert config is not None
    assert config.integer(("num_query_groups",)) == 2


def test_only_the_bytes_of_the_layer_are_read(tmp_path: Path) -> None:
    write(tmp_path, tensors={QKV: random_bits((64, 32, 16), torch.float32, 1)})
    checkpoint = open_checkpoint(tmp_path)
    files = Files(tmp_path)
    read_tensor(checkpoint, QKV.replace("layers.", "layers.7."), files)
    assert files.bytes_read == 32 * 16 * 4


@pytest.mark.parametrize("state", ["fp32_param", "param"])
def test_masters_take_the_place_of_the_weights(tmp_path: Path, state: str) -> None:
    masters = {f"optimizer.state.{state}.{name}": t for name, t in stacked(torch.float32).items()}
    write(tmp_path, tensors=stacked() | masters)

    checkpoint = open_checkpoint(tmp_path)

    name = QKV.replace("layers.", "layers.2.")
    assert checkpoint.tensors[name].dtype == "float32"
    master = masters[f"optimizer.state.{state}.{QKV}"][2]
    assert same_bits(read_tensor(checkpoint, name, Files(tmp_path)), master)
    assert checkpoint.notes == ("float32 masters are read for 6 of 6 tensors",)
    assert not any(name.startswith("optimizer") for name in checkpoint.tensors)


def test_masters_of_another_shape_are_left_alone(tmp_path: Path) -> None:
    masters = {f"optimizer.state.fp32_param.{QKV}": random_bits((3, 2, 16), torch.float32, 3)}
    write(tmp_path, tensors=stacked() | masters)
    assert open_checkpoint(tmp_path).tensors[QKV.replace("layers.", "layers.0.")].dtype == "bfloat16"


def test_masters_without_names_are_told_with_the_flag_that_names_them(tmp_path: Path) -> None:
    bucket = "optimizer.distributed.dp_group_idx_0.gbuf_idx_0.dtype_(torch.bfloat16, torch.float32)"
    masters = {f"{bucket}.bucket_idx_0.param": random_bits((120,), torch.float32, 3)}
    write(tmp_path, tensors=stacked() | masters)
    (note,) = open_checkpoint(tmp_path).notes
    assert "--dist-ckpt-optim-fully-reshardable" in note


@pytest.mark.parametrize("common_file", [True, False])
def test_without_the_marker_it_is_incomplete(tmp_path: Path, common_file: bool) -> None:
    write(tmp_path, tensors=stacked(), marker=None, common_file=common_file)
    with pytest.raises(IncompleteCheckpoint, match=r"metadata\.json"):
        open_checkpoint(tmp_path)


def test_the_zarr_backend_is_named_and_refused(tmp_path: Path) -> None:
    (tmp_path / "decoder.final_layernorm.weight").mkdir()
    (tmp_path / "decoder.final_layernorm.weight" / ".zarray").write_text("{}")
    torch.save({"args": ARGS}, tmp_path / "common.pt")
    (tmp_path / "metadata.json").write_text(json.dumps({"sharded_backend": "zarr"}))
    with pytest.raises(UnsupportedCheckpoint, match=r"'zarr'.*--ckpt-format torch_dist"):
        open_checkpoint(tmp_path)


def test_a_tensor_that_claims_endless_layers_is_refused(tmp_path: Path) -> None:
    writer = ChunkWriter()
    writer.add(QKV, torch.empty(1 << 20, 0), (1, 1))
    writer.write(tmp_path)
    torch.save({}, tmp_path / "common.pt")
    (tmp_path / "metadata.json").write_text(json.dumps(TORCH_DIST))
    with pytest.raises(UnsupportedCheckpoint, match="holds 1048576 layers"):
        open_checkpoint(tmp_path)


def test_nemo_keeps_it_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "weights").mkdir()
    write(tmp_path / "weights", tensors=stacked())
    (tmp_path / "context").mkdir()
    (tmp_path / "context" / "model.yaml").write_text("config:\n  num_attention_heads: 4\n")
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.format == "nemo"
    name = QKV.replace("layers.", "layers.1.")
    assert same_bits(read_tensor(checkpoint, name, Files(tmp_path)), stacked()[QKV][1])

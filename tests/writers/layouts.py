"""Every way of writing the same weights, by the libraries that write them in the field."""

from __future__ import annotations

import argparse
import json
import warnings
from collections import OrderedDict
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file

from tests.writers.dcp_chunks import ChunkWriter
from tests.writers.layout import Layout, Weights


def halves(weights: Weights) -> tuple[Weights, Weights]:
    """Every second weight, and the others."""
    names = list(weights)
    return {n: weights[n] for n in names[::2]}, {n: weights[n] for n in names[1::2]}


def _write_index(path: Path, shards: dict[str, Weights]) -> None:
    weight_map = {name: file for file, weights in shards.items() for name in weights}
    total = sum(tensor.nbytes for weights in shards.values() for tensor in weights.values())
    path.write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}, indent=2))


def write_safetensors(directory: Path, weights: Weights) -> None:
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})


def write_sharded_safetensors(directory: Path, weights: Weights) -> None:
    first, second = halves(weights)
    shards = {"model-00001-of-00002.safetensors": first, "model-00002-of-00002.safetensors": second}
    for file, shard in shards.items():
        save_file(shard, directory / file, metadata={"format": "pt"})
    _write_index(directory / "model.safetensors.index.json", shards)


def write_torch_file(directory: Path, weights: Weights) -> None:
    torch.save(weights, directory / "pytorch_model.bin")


def write_nanogpt_file(directory: Path, weights: Weights) -> None:
    content = {
        "model": OrderedDict(weights),
        "optimizer": {"state": {}, "param_groups": [{"lr": 6e-4, "betas": (0.9, 0.95), "params": [0, 1]}]},
        "model_args": {"n_layer": 2, "n_head": 2, "n_embd": 4, "bias": False, "vocab_size": None},
        "iter_num": 2000,
        "best_val_loss": torch.tensor(3.25),
    }
    torch.save(content, directory / "ckpt.pt")


def write_sharded_torch_files(directory: Path, weights: Weights) -> None:
    first, second = halves(weights)
    shards = {"pytorch_model-00001-of-00002.bin": first, "pytorch_model-00002-of-00002.bin": second}
    for file, shard in shards.items():
        torch.save(shard, directory / file)
    _write_index(directory / "pytorch_model.bin.index.json", shards)


def write_dcp(directory: Path, weights: Weights) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        dcp.save({"model": weights, "step": 2000}, checkpoint_id=directory, no_dist=True)


def write_dcp_rows(directory: Path, weights: Weights) -> None:
    """As fully sharded training over four ranks does: row blocks, uneven, some of them empty."""
    writer = ChunkWriter()
    for name, tensor in weights.items():
        writer.add(name, tensor, (4, 1, 1, 1)[: max(tensor.dim(), 1)])
    writer.add_object("step", 2000)
    writer.write(directory)


def write_dcp_grid(directory: Path, weights: Weights) -> None:
    """As tensor parallelism on top of that does: blocks of rows and columns."""
    writer = ChunkWriter(num_files=3)
    for name, tensor in weights.items():
        writer.add(name, tensor, (2, 3, 2, 1)[: max(tensor.dim(), 1)])
    writer.add_object("train_state.step", 2000)
    writer.write(directory)


def write_accelerate_fsdp(directory: Path, weights: Weights) -> None:
    """As Accelerate does under FSDP: the model's folder of its checkpoint."""
    write_dcp_rows(directory / "pytorch_model_fsdp_0", weights)


def write_megatron_core(directory: Path, weights: Weights) -> None:
    """As Megatron-Core does for layers that differ: common state first, the marker last."""
    common = {"args": argparse.Namespace(num_attention_heads=2), "iteration": 2000, "checkpoint_version": 3.0}
    torch.save(common, directory / "common.pt")
    write_dcp_grid(directory, weights)
    backends = {"sharded_backend": "torch_dist", "sharded_backend_version": 1}
    backends |= {"common_backend": "torch", "common_backend_version": 1}
    (directory / "metadata.json").write_text(json.dumps(backends))


SAFETENSORS = "safetensors"
TORCH = "torch.save"
DCP = "torch.distributed.checkpoint"

LAYOUTS = (
    Layout("safetensors", write_safetensors, "model.safetensors", SAFETENSORS),
    Layout(
        "safetensors-sharded",
        write_sharded_safetensors,
        "model-00002-of-00002.safetensors",
        SAFETENSORS,
        several_files=True,
    ),
    Layout("torch", write_torch_file, "pytorch_model.bin", TORCH),
    Layout("torch-nanogpt", write_nanogpt_file, "ckpt.pt", TORCH, prefix="model."),
    Layout(
        "torch-sharded",
        write_sharded_torch_files,
        "pytorch_model-00002-of-00002.bin",
        TORCH,
        several_files=True,
    ),
    Layout("dcp", write_dcp, "__0_0.distcp", DCP, prefix="model.", several_files=True),
    Layout("dcp-rows", write_dcp_rows, "__1_0.distcp", DCP, several_files=True),
    Layout("dcp-grid", write_dcp_grid, "__1_0.distcp", DCP, several_files=True),
    Layout(
        "accelerate-fsdp",
        write_accelerate_fsdp,
        "pytorch_model_fsdp_0/__1_0.distcp",
        "accelerate_fsdp",
        several_files=True,
    ),
    Layout("megatron-core", write_megatron_core, "__1_0.distcp", "megatron_core", several_files=True),
)

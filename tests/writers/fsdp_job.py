"""One rank of a real job on CPUs: `python -m tests.writers.fsdp_job OUT` in the environment of torchrun.

Trains one step under FSDP2 and saves, by torch.distributed.checkpoint, the model, the optimizer, and tensors
cut in every way that four ranks allow; rank 0 also saves all of them whole, as the truth to compare with.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

ROWS = (1, 3, 4, 5, 6, 8)
NUM_RANKS = 4


class Model(nn.Module):
    """Layers whose rows do not divide by the number of ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6, bias=index % 2 == 0) for index in range(2))
        self.five = nn.Linear(6, 5)
        self.one = nn.Linear(5, 1)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x).relu()
        return self.one(self.five(x))  # type: ignore[no-any-return]


def cut_in_every_way() -> dict[str, DTensor]:
    """Tensors by what was done to them: rows, columns, both, replicated, of every number of rows."""
    line = init_device_mesh("cpu", (NUM_RANKS,))
    square = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "shards"))
    generator = torch.Generator().manual_seed(1)
    found: dict[str, DTensor] = {}
    for rows in ROWS:
        whole = torch.randn(rows, 7, generator=generator)
        found[f"rows.{rows}"] = distribute_tensor(whole, line, [Shard(0)])
        found[f"columns.{rows}"] = distribute_tensor(whole, line, [Shard(1)])
        found[f"grid.{rows}"] = distribute_tensor(whole, square, [Shard(0), Shard(1)])
        found[f"twice.{rows}"] = distribute_tensor(whole, square, [Shard(0), Shard(0)])
        found[f"replicas.{rows}"] = distribute_tensor(whole, square, [Replicate(), Shard(0)])
        found[f"copies.{rows}"] = distribute_tensor(whole.bfloat16(), line, [Replicate()])
    found["bias"] = distribute_tensor(torch.randn(6, generator=generator), line, [Shard(0)])
    found["cube"] = distribute_tensor(torch.randn(2, 5, 3, generator=generator), square, [Shard(1), Shard(2)])
    return found


def whole(value: Any) -> Any:
    """With every distributed tensor gathered."""
    if isinstance(value, DTensor):
        return value.full_tensor()
    if isinstance(value, dict):
        return {key: whole(child) for key, child in value.items()}
    return value


def main() -> None:
    out = Path(sys.argv[1])
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = Model()
    mesh = init_device_mesh("cpu", (NUM_RANKS,))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model(torch.ones(2, 6)).sum().backward()
    optimizer.step()
    weights, state = get_state_dict(model, optimizer)
    content = {"model": weights, "optim": state, "cut": cut_in_every_way(), "step": 1}
    dcp.save(content, checkpoint_id=out / "plain")
    dcp.save(content, storage_writer=dcp.FileSystemWriter(out / "a-file-each", single_file_per_rank=False))
    dcp.save(content, storage_writer=dcp.FileSystemWriter(out / "two-threads", thread_count=2))
    torch.save(weights, out / f"rank_{dist.get_rank()}.pt")
    gathered = whole(content)
    if dist.get_rank() == 0:
        torch.save(gathered, out / "whole.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

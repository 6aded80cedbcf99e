"""One of two gloo processes that shard a Llama with FSDP2 and save it by torch.distributed.checkpoint.

Usage: fsdp2_dcp.py MODEL_DIRECTORY OUTPUT, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set.
"""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import LlamaForCausalLM


def main() -> None:
    source, output = sys.argv[1:]
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    model = LlamaForCausalLM.from_pretrained(source, dtype=torch.float32)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    dcp.save({"model": get_model_state_dict(model), "step": 7}, checkpoint_id=output)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

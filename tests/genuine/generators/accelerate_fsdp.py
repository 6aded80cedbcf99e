"""Accelerate's `save_state` of a model under FSDP2, sharded: `torchrun … accelerate_fsdp.py OUT`.

Writes `OUT/step_10/` as the framework does, and the whole tensors plainly to `OUT/expected.safetensors`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from accelerate.utils import DistributedType
from safetensors.torch import save_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from transformers import LlamaConfig, LlamaForCausalLM


def main() -> None:
    out = Path(sys.argv[1])
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=40,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=51,
    )
    model = LlamaForCausalLM(config)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    # Accelerate chooses FSDP on accelerators only; its writing code runs unchanged once it is told so.
    accelerator._models.append(model)
    accelerator._optimizers.append(optimizer)
    shared = accelerator.state._shared_state
    shared["distributed_type"] = DistributedType.FSDP
    shared["fsdp_plugin"] = FullyShardedDataParallelPlugin(
        fsdp_version=2, reshard_after_forward=True, state_dict_type="SHARDED_STATE_DICT"
    )
    tokens = torch.randint(0, 51, (2, 8))
    model(input_ids=tokens, labels=tokens).loss.backward()
    optimizer.step()
    accelerator.save_state(str(out / "step_10"))
    whole = {
        name: (value.full_tensor() if isinstance(value, DTensor) else value).clone()
        for name, value in model.state_dict().items()
    }
    if dist.get_rank() == 0:
        save_file({name: tensor.contiguous() for name, tensor in whole.items()}, out / "expected.safetensors")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

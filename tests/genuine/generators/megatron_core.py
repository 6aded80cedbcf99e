"""The real Megatron-Core writes a `torch_dist` checkpoint on gloo; every rank dumps its weights.

usage: megatron_core.py OUT TP PP [--moe] [--layers-apart] [--bf16]

Writes OUT/iter_0000010 and OUT/expected_RANK.pt: for each local parameter its name, its tensor, its float32
master, and the offset of its layers.
"""

from __future__ import annotations

import argparse
import multiprocessing
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist


def without_gpu() -> None:
    """Answer for the CPU where Megatron-Core asks CUDA whatever the backend."""
    torch.cuda.current_device = lambda: "cpu"
    torch.cuda.synchronize = lambda *_: None
    torch.cuda.get_rng_state = lambda *_, **__: torch.get_rng_state()
    torch.cuda.set_rng_state = lambda *_, **__: None


def main() -> None:
    """One rank."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("tp", type=int)
    parser.add_argument("pp", type=int)
    parser.add_argument("--moe", action="store_true")
    parser.add_argument("--layers-apart", action="store_true")
    parser.add_argument("--bf16", action="store_true")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    without_gpu()
    from megatron.core import dist_checkpointing, parallel_state
    from megatron.core.dist_checkpointing.mapping import ShardedTensor
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.transformer_config import TransformerConfig

    parallel_state.initialize_model_parallel(args.tp, args.pp)
    torch.manual_seed(0)
    settings = {
        "num_layers": 4,
        "hidden_size": 64,
        "num_attention_heads": 8,
        "num_query_groups": 4,
        "kv_channels": 8,
        "ffn_hidden_size": 96,
        "use_cpu_initialization": True,
        "tensor_model_parallel_size": args.tp,
        "pipeline_model_parallel_size": args.pp,
        "pipeline_dtype": torch.float32,
        "add_bias_linear": False,
        "add_qkv_bias": True,
        "gradient_accumulation_fusion": False,
        "bias_dropout_fusion": False,
        "masked_softmax_fusion": False,
        "hetereogenous_dist_checkpoint": args.layers_apart,
        "params_dtype": torch.bfloat16 if args.bf16 else torch.float32,
        "bf16": args.bf16,
    }
    if args.moe:
        settings |= {
            "num_moe_experts": 4,
            "moe_router_topk": 2,
            "moe_router_enable_expert_bias": True,
            "moe_router_score_function": "sigmoid",
            "moe_ffn_hidden_size": 32,
            "moe_router_load_balancing_type": "none",
            "moe_grouped_gemm": False,
        }
    spec = get_gpt_layer_local_spec(num_experts=4 if args.moe else None, moe_grouped_gemm=False)
    model = GPTModel(
        TransformerConfig(**settings),
        spec,
        vocab_size=128,
        max_sequence_length=64,
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(),
        share_embeddings_and_output_weights=False,
        parallel_output=True,
    )
    generator = torch.Generator().manual_seed(1 + dist.get_rank() // args.tp)
    masters = {}
    for name, parameter in model.named_parameters():
        shared = not getattr(parameter, "tensor_model_parallel", False)
        noise = torch.randn(parameter.shape, generator=generator if shared else None)
        masters[name] = parameter.detach().float() + 1e-2 * noise
        parameter.data.copy_(masters[name])

    groups = {"dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True)}
    state = model.sharded_state_dict(metadata=groups)
    optimizer = {
        name: replace(
            each,
            key=f"optimizer.state.fp32_param.{each.key}",
            data=masters[name],
            dtype=torch.float32,
        )
        for name, each in model.sharded_state_dict(metadata=groups).items()
        if isinstance(each, ShardedTensor) and name in masters
    }
    full = {
        "args": argparse.Namespace(**settings),
        "checkpoint_version": 3.0,
        "iteration": 10,
        "model": state,
        "optimizer": {"state": optimizer, "param_groups": [{"lr": 1e-3}]},
    }
    directory = args.out / "iter_0000010"
    if dist.get_rank() == 0:
        directory.mkdir(parents=True)
    dist.barrier()
    dist_checkpointing.save(full, str(directory))

    layers = [layer.layer_number - 1 for layer in model.decoder.layers]
    plain = {
        "tp": parallel_state.get_tensor_model_parallel_rank(),
        "first_layer": layers[0],
        "split_along": {
            name: parameter.partition_dim
            for name, parameter in model.named_parameters()
            if getattr(parameter, "tensor_model_parallel", False)
        },
        "parameters": {name: parameter.detach().clone() for name, parameter in model.named_parameters()},
        "masters": masters,
    }
    torch.save(plain, args.out / f"expected_{dist.get_rank()}.pt")
    dist.barrier()
    dist.destroy_process_group()
    for child in multiprocessing.active_children():  # the manager of its writers, which would outlive this
        child.terminate()
        child.join()


if __name__ == "__main__":  # its asynchronous writer starts processes that import this again
    main()

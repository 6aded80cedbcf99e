"""Mixtures of experts with Llama's attention and a softmax router: Mixtral, Qwen2-MoE, Qwen3-MoE, OLMoE.

Mixtral's router is `block_sparse_moe.gate` in files, and `mlp.gate` in the memory of transformers 5,
hence in shards that were written from memory. Qwen's `mlp.shared_expert_gate` is no router.
"""

from __future__ import annotations

from foreshock.daemon.roles.architecture import Architecture
from foreshock.daemon.roles.base import Role
from foreshock.daemon.roles.llama import ATTENTION_ROLES, BLOCK, NORM_BEFORE_ROUTER

QWEN_MOE = Architecture(
    name="qwen_moe",
    block=BLOCK,
    roles={
        **ATTENTION_ROLES,
        Role.ROUTER: ("mlp.gate.weight",),
        Role.ROUTER_NORM: NORM_BEFORE_ROUTER,
    },
    model_types=frozenset({"qwen2_moe", "qwen3_moe", "olmoe"}),
)

MIXTRAL = Architecture(
    name="mixtral",
    block=BLOCK,
    roles={
        **ATTENTION_ROLES,
        Role.ROUTER: ("block_sparse_moe.gate.weight", "mlp.gate.weight"),
        Role.ROUTER_NORM: NORM_BEFORE_ROUTER,
    },
    model_types=frozenset({"mixtral"}),
)

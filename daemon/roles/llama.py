"""Llama and the many models that name attention like it: Mistral, Qwen 2 and 3, OLMo 1 and 2, Gemma.

q, k, v and o are separate `nn.Linear` matrices. Gemma scales by 1 + γ in its norms, and from Gemma 2 on
the norm before the feed-forward part has a name of its own; `post_attention_layernorm` then comes
after attention, not before the router.
"""

from __future__ import annotations

from collections.abc import Mapping

from foreshock.daemon.roles.architecture import Architecture
from foreshock.daemon.roles.base import Role, RouterTraits

BLOCK = "model.layers.{layer}"

ATTENTION_ROLES: Mapping[Role, tuple[str, ...]] = {
    Role.Q: ("self_attn.q_proj.weight",),
    Role.K: ("self_attn.k_proj.weight",),
    Role.V: ("self_attn.v_proj.weight",),
    Role.O: ("self_attn.o_proj.weight",),
}

NORM_BEFORE_ROUTER = ("post_attention_layernorm.weight",)

LLAMA = Architecture(name="llama", block=BLOCK, roles=ATTENTION_ROLES)

GEMMA = Architecture(
    name="gemma",
    block=BLOCK,
    roles={
        **ATTENTION_ROLES,
        Role.ROUTER: ("mlp.gate.weight", "block_sparse_moe.gate.weight"),
        Role.ROUTER_NORM: ("pre_feedforward_layernorm.weight", *NORM_BEFORE_ROUTER),
    },
    router=RouterTraits(norm_offset=1.0),
    model_types=frozenset({"gemma", "gemma2", "gemma3", "gemma3_text"}),
)

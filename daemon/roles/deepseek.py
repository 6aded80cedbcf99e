"""DeepSeek's mixtures of experts, with or without multi-head latent attention, and those built like them.

V2 scores experts by softmax. V3 (Kimi K2, GLM-4.5) scores by sigmoid and adds a correction bias that is
moved by a sign rule, not by the optimizer; the first layers are dense. Latent attention keeps q in
`q_proj` or, through a bottleneck, in `q_b_proj`, and [k_nope v] of each head in `kv_b_proj`; the
rotary part of the key is shared by all heads and lies in `kv_a_proj_with_mqa`, which has no role.
"""

from __future__ import annotations

from collections.abc import Mapping

from foreshock.daemon.roles.architecture import Architecture, Fused
from foreshock.daemon.roles.base import Role, RouterTraits
from foreshock.daemon.roles.llama import ATTENTION_ROLES, BLOCK, NORM_BEFORE_ROUTER

_ROLES: Mapping[Role, tuple[str, ...]] = {
    **ATTENTION_ROLES,
    Role.Q: ("self_attn.q_proj.weight", "self_attn.q_b_proj.weight"),
    Role.ROUTER: ("mlp.gate.weight",),
    Role.ROUTER_NORM: NORM_BEFORE_ROUTER,
}
_LATENT_KV = Fused("self_attn.kv_b_proj.weight", "latent")
_LATENT = ("self_attn.kv_a_proj_with_mqa.weight",)

DEEPSEEK_V2 = Architecture(
    name="deepseek_v2",
    block=BLOCK,
    roles=_ROLES,
    fused=(_LATENT_KV,),
    latent=_LATENT,
    model_types=frozenset({"deepseek", "deepseek_v2"}),
)

DEEPSEEK_V3 = Architecture(
    name="deepseek_v3",
    block=BLOCK,
    roles={**_ROLES, Role.ROUTER_BIAS: ("mlp.gate.e_score_correction_bias",)},
    fused=(_LATENT_KV,),
    latent=_LATENT,
    router=RouterTraits(scoring="sigmoid"),
    model_types=frozenset({"deepseek_v3", "kimi_k2", "glm4_moe"}),
)

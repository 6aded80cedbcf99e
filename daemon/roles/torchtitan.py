"""torchtitan's own models: Llama 3 and 4, Qwen 3, DeepSeek-V3.

From 0.3 on, q, k and v lie below `qkv_linear` and the bias of a router has another name. A checkpoint
says neither how many heads there are nor whether routers score by softmax or sigmoid.
"""

from __future__ import annotations

from foreshock.daemon.roles.architecture import Architecture, Fused, HeadKeys
from foreshock.daemon.roles.base import Role

TORCHTITAN = Architecture(
    name="torchtitan",
    block="layers.{layer}",
    roles={
        Role.Q: (
            "attention.wq.weight",
            "attention.qkv_linear.wq.weight",
            "attention.wq_b.weight",
        ),
        Role.K: ("attention.wk.weight", "attention.qkv_linear.wk.weight"),
        Role.V: ("attention.wv.weight", "attention.qkv_linear.wv.weight"),
        Role.O: ("attention.wo.weight",),
        Role.ROUTER: ("moe.router.gate.weight",),
        Role.ROUTER_BIAS: ("moe.expert_bias", "moe.expert_bias_E"),
        Role.ROUTER_NORM: ("ffn_norm.weight",),
    },
    fused=(Fused("attention.wkv_b.weight", "latent"),),
    latent=("attention.wkv_a.weight",),
    head_keys=HeadKeys(
        num_heads=("n_heads", "num_attention_heads"),
        num_kv_heads=("n_kv_heads", "num_key_value_heads"),
        head_dim=("head_dim",),
        width=("dim", "hidden_size"),
    ),
    scoring_varies=True,
)

"""GPT-2 as Hugging Face saves it, and nanoGPT, which has the same names.

`c_attn` is `[Q; K; V]`: stored (C, 3C) by Hugging Face's Conv1D and (3C, C) by nanoGPT's nn.Linear.
`c_proj` is square, so its orientation is that of `c_attn`.
"""

from __future__ import annotations

from foreshock.daemon.roles.architecture import Architecture, Fused, HeadKeys
from foreshock.daemon.roles.base import Role

GPT2 = Architecture(
    name="gpt2",
    block="transformer.h.{layer}",
    roles={Role.O: ("attn.c_proj.weight",)},
    fused=(Fused("attn.c_attn.weight", "stacked"),),
    head_keys=HeadKeys(
        num_heads=("n_head", "num_attention_heads"),
        num_kv_heads=(),
        head_dim=(),
        width=("n_embd", "hidden_size"),
    ),
    model_types=frozenset({"gpt2"}),
)

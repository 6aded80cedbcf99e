"""GPT-NeoX and Pythia as Hugging Face saves them: one fused matrix, head after head [q k v]."""

from __future__ import annotations

from foreshock.daemon.roles.architecture import Architecture, Fused
from foreshock.daemon.roles.base import Role

GPT_NEOX = Architecture(
    name="gpt_neox",
    block="gpt_neox.layers.{layer}",
    roles={Role.O: ("attention.dense.weight",)},
    fused=(Fused("attention.query_key_value.weight", "per_head"),),
    model_types=frozenset({"gpt_neox"}),
)

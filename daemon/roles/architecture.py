"""What a table of an architecture says: a name, which suffixes mean what, and what cannot be seen in names.

A table is data. To add an architecture, write one file with one `Architecture` and name it in
`ARCHITECTURES`; no other code changes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from foreshock.daemon.roles.base import Role, RouterTraits

Layout = Literal["stacked", "per_head", "latent"]
"""How the rows of a fused tensor belong to roles.

- `stacked`: `[Q; K; V]` in equal thirds, stored (3C, C) or, as by GPT-2's Conv1D, (C, 3C).
- `per_head`: `[q k v]` of one head after the other; needs the number of heads.
- `latent`: `[k v]` of one head after the other, as in the up-projection of multi-head latent
  attention; needs `qk_nope_head_dim` and `v_head_dim`.
"""

_ROLES_OF_LAYOUT: Mapping[Layout, tuple[Role, ...]] = {
    "stacked": (Role.Q, Role.K, Role.V),
    "per_head": (Role.Q, Role.K, Role.V),
    "latent": (Role.K, Role.V),
}


@dataclass(frozen=True, slots=True)
class Fused:
    """One saved tensor that holds several roles.

    Attributes:
        suffix: the name below the block.
        layout: which rows are whose.
    """

    suffix: str
    layout: Layout

    @property
    def roles(self) -> tuple[Role, ...]:
        """In the order of their rows."""
        return _ROLES_OF_LAYOUT[self.layout]


@dataclass(frozen=True, slots=True)
class HeadKeys:
    """Configuration keys that tell how matrices split into heads; the first that gives a number counts.

    The defaults are those of Hugging Face's `config.json`, of Megatron's arguments, and of nanoGPT and its
    many descendants.

    Attributes:
        width: of the residual stream; divided by the number of heads where no head size is given.
    """

    num_heads: tuple[str, ...] = ("num_attention_heads", "n_head")
    num_kv_heads: tuple[str, ...] = ("num_key_value_heads", "num_query_groups", "n_kv_head")
    head_dim: tuple[str, ...] = ("head_dim", "kv_channels")
    width: tuple[str, ...] = ("hidden_size", "n_embd")


@dataclass(frozen=True, slots=True)
class Architecture:
    """How one family of models names its parameters.

    Attributes:
        name: short, for people.
        block: path of a transformer block as the family's own code names it, ending in `{layer}`. In
            a checkpoint anything may stand before its last two components; series are named by it.
        roles: suffixes below the block per role, the preferred first.
        fused: tensors that hold several roles.
        latent: suffixes that betray multi-head latent attention, where q, k and v differ in rows per
            head; such layers have no `Heads`.
        head_keys: where a configuration tells the heads.
        router: traits of the family's routers; `scoring_func` in a configuration overrides the scoring.
        scoring_varies: the family has routers of both kinds, so a silent configuration is warned of.
        model_types: values of `model_type` that speak for this table when names alone do not decide.
    """

    name: str
    block: str
    roles: Mapping[Role, tuple[str, ...]]
    fused: tuple[Fused, ...] = ()
    latent: tuple[str, ...] = ()
    head_keys: HeadKeys = field(default_factory=HeadKeys)
    router: RouterTraits = field(default_factory=RouterTraits)
    scoring_varies: bool = False
    model_types: frozenset[str] = frozenset()

    @property
    def container(self) -> str:
        """The component before the layer's number: `layers`, `h`."""
        return self.block.split(".")[-2]

    def roles_by_suffix(self) -> Mapping[str, tuple[Role, ...]]:
        """What each suffix gives; empty for one that only betrays latent attention."""
        given: dict[str, tuple[Role, ...]] = dict.fromkeys(self.latent, ())
        given |= {suffix: (role,) for role, suffixes in self.roles.items() for suffix in suffixes}
        given |= {fused.suffix: fused.roles for fused in self.fused}
        return given

    def suffixes_giving(self, roles: Collection[Role]) -> Mapping[str, frozenset[Role]]:
        """Suffixes that give at least one of the roles, with those they give."""
        given = {suffix: frozenset(roles).intersection(has) for suffix, has in self.roles_by_suffix().items()}
        return {suffix: has for suffix, has in given.items() if has}

    def canonical(self, layer: int, suffix: str) -> str:
        """The name of a parameter as the family's own code has it, whatever stood before it."""
        return f"{self.block.format(layer=layer)}.{suffix}"

"""What a parameter is for: the vocabulary that architecture tables speak and monitors listen to.

Nothing here looks at tensor data: roles follow from names, shapes and the model's configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor


class Role(StrEnum):
    """The parameters that monitors look at; all others have no role."""

    Q = "q"
    K = "k"
    V = "v"
    O = "o"  # noqa: E741 - the field's name for the output projection
    ROUTER = "router"
    ROUTER_BIAS = "router_bias"
    ROUTER_NORM = "router_norm"


ATTENTION = (Role.Q, Role.K, Role.V, Role.O)


@dataclass(frozen=True, slots=True)
class Heads:
    """How the rows of q, k, v (and the columns of o) split into heads.

    Attributes:
        num_heads: query heads, H.
        num_kv_heads: key and value heads; H is a multiple of it, and each serves H / num_kv_heads
            consecutive query heads.
        head_dim: rows per head, D.
        source: where the numbers come from, for people (`config.json`, `--heads`).
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    source: str = ""

    def of(self, role: Role) -> int:
        """Number of heads in a role's matrix."""
        return self.num_kv_heads if role in {Role.K, Role.V} else self.num_heads


@dataclass(frozen=True, slots=True)
class Part:
    """The rows of a saved tensor that make up one role.

    The tensor (transposed first when `transposed`) is seen as `groups` blocks of `group_rows` rows;
    the role owns rows `start` to `stop` of every block. Plain matrices are one block, `[Q; K; V]` is
    one block of three ranges, GPT-NeoX is one block per head, grouped layouts one per key head.

    Attributes:
        parameter: the saved name, unchanged.
        transposed: stored (in, out) as by GPT-2's Conv1D, not (out, in) as by nn.Linear.
    """

    parameter: str
    groups: int
    group_rows: int
    start: int
    stop: int
    transposed: bool = False

    def select(self, tensor: Tensor) -> Tensor:
        """The role's matrix of shape (groups · (stop − start), in), a view where possible."""
        rows = tensor.T if self.transposed else tensor
        if self.start == 0 and self.stop == self.group_rows:
            return rows
        blocks = rows.reshape(self.groups, self.group_rows, *rows.shape[1:])
        return blocks[:, self.start : self.stop].reshape(-1, *rows.shape[1:])


@dataclass(frozen=True, slots=True)
class RouterTraits:
    """How a router turns logits into weights.

    Attributes:
        scoring: over experts; sigmoid scores are normalised before any entropy.
        norm_offset: added to the stored gain of the norm before the router (1 for Gemma's `1 + γ`).
    """

    scoring: Literal["softmax", "sigmoid"] = "softmax"
    norm_offset: float = 0.0


@dataclass(frozen=True, slots=True)
class Layer:
    """The parameters of one transformer block that have a role.

    Attributes:
        names: per role, the saved name with wrapper prefixes removed; what series are called by.
        heads: None when the number of heads is unknown or contradicts the shapes; then only whole
            matrices are measured.
    """

    index: int
    parts: Mapping[Role, Part]
    names: Mapping[Role, str]
    heads: Heads | None = None
    router: RouterTraits = field(default_factory=RouterTraits)


@dataclass(frozen=True, slots=True)
class RoleMap:
    """The whole checkpoint, sorted by layer.

    Attributes:
        architecture: name of the table that matched most parameters, or `unknown`.
        unassigned: saved names that no table gives a role, sorted.
        warnings: sentences that say what could not be told, and which option would tell it.
    """

    architecture: str
    layers: tuple[Layer, ...]
    unassigned: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def parameters(self) -> tuple[str, ...]:
        """Saved names of every tensor that has a role, each once, sorted."""
        return tuple(sorted({part.parameter for layer in self.layers for part in layer.parts.values()}))

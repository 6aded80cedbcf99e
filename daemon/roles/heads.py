"""How many heads a layer has: stated by the user or a configuration, checked against shapes, never guessed.

Letters: H query heads, K key and value heads, D features per head.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from foreshock.daemon.errors import ConfigError
from foreshock.daemon.roles.architecture import HeadKeys
from foreshock.daemon.roles.base import Heads, Role
from foreshock.daemon.roles.model_config import ModelConfig
from foreshock.daemon.roles.problems import Report

HEADS_OPTION = "--heads"
KV_HEADS_OPTION = "--kv-heads"
HEAD_DIM_OPTION = "--head-dim"

_NO_CONFIG = "no config.json"


@dataclass(frozen=True, slots=True)
class HeadsOverride:
    """What the user states; it wins over any configuration, number by number.

    Raises:
        ConfigError: a number is below 1.
    """

    num_heads: int | None = None
    num_kv_heads: int | None = None
    head_dim: int | None = None

    def __post_init__(self) -> None:
        for option, value in self.by_option().items():
            if value < 1:
                raise ConfigError(f"{option} {value}: must be at least 1")

    def by_option(self) -> Mapping[str, int]:
        """The stated numbers by the option that states them."""
        options = {
            HEADS_OPTION: self.num_heads,
            KV_HEADS_OPTION: self.num_kv_heads,
            HEAD_DIM_OPTION: self.head_dim,
        }
        return {option: value for option, value in options.items() if value is not None}


@dataclass(frozen=True, slots=True)
class StatedHeads:
    """What is said about heads before any shape is looked at.

    Attributes:
        width: of the residual stream; used only where no head size is stated.
        source: for people: the options, the configuration, or both.
        looked_in: where a number of heads was looked for in vain, for people.
    """

    num_heads: int | None = None
    num_kv_heads: int | None = None
    head_dim: int | None = None
    width: int | None = None
    source: str = ""
    looked_in: str = _NO_CONFIG

    @property
    def sufficient(self) -> bool:
        """Whether the shape of q then tells the rest."""
        return self.num_heads is not None or self.head_dim is not None


def stated_heads(keys: HeadKeys, config: ModelConfig, override: HeadsOverride | None) -> StatedHeads:
    """Put the user's numbers before the configuration's."""
    user = override or HeadsOverride()
    theirs = (user.num_heads, user.num_kv_heads, user.head_dim)
    configured = tuple(config.integer(each) for each in (keys.num_heads, keys.num_kv_heads, keys.head_dim))
    num_heads, num_kv_heads, head_dim = (mine or its for mine, its in zip(theirs, configured, strict=True))
    config_used = any(its and not mine for mine, its in zip(theirs, configured, strict=True))
    return StatedHeads(
        num_heads,
        num_kv_heads,
        head_dim,
        width=config.integer(keys.width),
        source=", ".join([*user.by_option(), *([config.source] if config_used else [])]),
        looked_in=f"none of {', '.join(keys.num_heads)} in {config.source}" if config.source else _NO_CONFIG,
    )


def heads_of_layer(stated: StatedHeads, sizes: Mapping[Role, int], report: Report) -> Heads | None:
    """The layer's heads, or None when they are unknown or do not fit the shapes.

    Args:
        sizes: rows of q, k, v and columns of o, as far as the layer has them.
        report: is told what would tell the heads, or what contradicts what.
    """
    if not sizes:
        return None
    if not stated.sufficient:
        report(
            f"the number of heads is unknown ({stated.looked_in}), so only whole matrices are measured:"
            f" give {HEADS_OPTION} (and {KV_HEADS_OPTION}), or put the model's config.json beside the"
            " checkpoint"
        )
        return None
    heads = _completed(stated, sizes)
    wrong = _contradictions(heads, sizes)
    if not wrong:
        return heads
    report(
        f"{' and '.join(wrong)}; heads come from {stated.source}. Only whole matrices are"
        f" measured; {HEADS_OPTION}, {KV_HEADS_OPTION} and {HEAD_DIM_OPTION} state other numbers"
    )
    return None


def _completed(stated: StatedHeads, sizes: Mapping[Role, int]) -> Heads:
    """Fill what is not stated from the width, then from shapes; 0 stands for what does not divide."""
    q_rows, k_rows = _query_size(sizes), sizes.get(Role.K)
    H, D = stated.num_heads, stated.head_dim
    if H is None:
        H = _quotient(q_rows, D or 0)
    if D is None:
        D = _quotient(stated.width or q_rows, H)
    K = stated.num_kv_heads or (_quotient(k_rows, D) if k_rows else H)
    return Heads(H, K, D, stated.source)


def _query_size(sizes: Mapping[Role, int]) -> int:
    """H · D, of q or else of o; 0 when the layer has neither."""
    return sizes.get(Role.Q) or sizes.get(Role.O) or 0


def _quotient(whole: int, part: int) -> int:
    return whole // part if part and whole % part == 0 else 0


def _contradictions(heads: Heads, sizes: Mapping[Role, int]) -> list[str]:
    H, K, D = heads.num_heads, heads.num_kv_heads, heads.head_dim
    if not (H and K and D):
        shapes = ", ".join(_in_words(role, size) for role, size in sizes.items())
        numbers = ", ".join(f"{name} {n}" for name, n in (("H", H), ("K", K), ("D", D)) if n)
        return [f"{shapes}, which does not divide into the heads stated ({numbers})"]
    wrong = [
        f"{_in_words(role, size)}, but {heads.of(role)} heads of {D} need {heads.of(role) * D}"
        for role, size in sizes.items()
        if size != heads.of(role) * D
    ]
    if H % K:
        wrong.append(f"{H} query heads are no multiple of {K} key heads")
    return wrong


def _in_words(role: Role, size: int) -> str:
    return f"{role} has {size} {'columns' if role is Role.O else 'rows'}"

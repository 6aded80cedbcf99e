"""Which saved tensors belong to one model: numbered blocks below one leading path.

A checkpoint may hold the weights twice (an average of them, the optimizer's own copy) or a vision model
whose parameters end like the language model's. Each leading path is a tower; one is measured.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from foreshock.daemon.roles.architecture import Architecture
from foreshock.daemon.roles.base import ATTENTION, Role

MAX_SUFFIX_CHARACTERS = 100
"""No table's suffix is longer; numbers further from the end of a name are not looked at."""

COPIES = frozenset(
    {
        "ema",
        "ema_model",
        "model_ema",
        "optim",
        "optimizer",
        "ref",
        "ref_model",
        "reference",
        "swa",
        "swa_model",
        "teacher",
    }
)
"""Components that name a second set of weights; of two equally large towers the other is preferred."""

Blocks = Mapping[int, Mapping[str, str]]
"""Saved names by suffix, by layer."""

_ROUTER = (Role.ROUTER, Role.ROUTER_BIAS)
_LAYER_NUMBER = re.compile(r"(?<=\.)(?:0|[1-9][0-9]{0,4})(?=\.)")  # below 100,000


@dataclass(frozen=True, slots=True)
class Place:
    """One way to read a name: as a parameter of a numbered block.

    Attributes:
        path: what stands before the container, without the dot between them.
        container: the component before the layer's number.
        suffix: what stands after it.
    """

    path: str
    container: str
    layer: int
    suffix: str


def places(name: str, containers: Mapping[str, Collection[str]]) -> Iterator[Place]:
    """The ways to read a name that some table knows.

    Args:
        containers: of the blocks below which a suffix has a meaning, by suffix.
    """
    for number in _LAYER_NUMBER.finditer(name, max(0, len(name) - MAX_SUFFIX_CHARACTERS)):
        suffix = name[number.end() + 1 :]
        if suffix in containers:
            path, _, container = name[: number.start() - 1].rpartition(".")
            if container in containers[suffix]:
                yield Place(path, container, int(number.group()), suffix)


def find_blocks(
    names: Mapping[str, str], architectures: Iterable[Architecture]
) -> Mapping[tuple[str, str], Blocks]:
    """All blocks with a known parameter, by container and leading path.

    Args:
        names: canonical names by saved name.
    """
    containers: defaultdict[str, set[str]] = defaultdict(set)
    for table in architectures:
        for suffix in table.roles_by_suffix():
            containers[suffix].add(table.container)
    found: dict[tuple[str, str], dict[int, dict[str, str]]] = {}
    for saved, name in names.items():
        for place in places(name, containers):
            blocks = found.setdefault((place.container, place.path), {})
            blocks.setdefault(place.layer, {})[place.suffix] = saved
    return found


@dataclass(frozen=True, slots=True)
class Tower:
    """The blocks below one leading path, as one table sees them.

    Attributes:
        blocks: they may hold suffixes that only other tables know.
        num_layers: blocks with attention or a router.
        num_attention_layers: blocks with any of q, k, v, o.
        num_whole_layers: blocks with all of them.
        num_attention: tensors of attention.
        num_measured: tensors of attention and of routers.
    """

    architecture: Architecture
    path: str
    blocks: Blocks
    num_layers: int
    num_attention_layers: int
    num_whole_layers: int
    num_attention: int
    num_measured: int

    @property
    def order(self) -> tuple[int, int, bool, int, int, str]:
        """Smaller is better: most layers of whole attention, then of any, then the shortest path.

        Whole attention counts first because vision towers often share the names of q, k, v but not o.
        """
        parts = self.path.split(".") if self.path else []
        is_copy = not COPIES.isdisjoint(parts)
        size = (-self.num_whole_layers, -self.num_attention_layers)
        return (*size, is_copy, len(parts), len(self.path), self.path)


def towers(found: Mapping[tuple[str, str], Blocks], architecture: Architecture) -> tuple[Tower, ...]:
    """The towers that a table sees, the best first; without attention and routers there is none."""
    seen = (
        _survey(architecture, path, blocks)
        for (container, path), blocks in found.items()
        if container == architecture.container
    )
    return tuple(sorted((tower for tower in seen if tower.num_layers), key=lambda tower: tower.order))


def _survey(architecture: Architecture, path: str, blocks: Blocks) -> Tower:
    """Count what the table knows of the blocks."""
    attention = {
        **dict.fromkeys(architecture.latent, frozenset[Role]()),
        **architecture.suffixes_giving(ATTENTION),
    }
    routers = architecture.suffixes_giving(_ROUTER)
    layers = partly = whole = num_attention = num_routers = 0
    for block, count in Counter(map(tuple, blocks.values())).items():  # blocks are mostly alike
        given = [attention[suffix] for suffix in block if suffix in attention]
        routed = sum(suffix in routers for suffix in block)
        roles = frozenset[Role]().union(*given)
        layers += count * bool(given or routed)
        partly += count * bool(roles)
        whole += count * (len(roles) == len(ATTENTION))
        num_attention += count * len(given)
        num_routers += count * routed
    return Tower(
        architecture, path, blocks, layers, partly, whole, num_attention, num_attention + num_routers
    )

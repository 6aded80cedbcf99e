"""Sort a checkpoint's tensors by layer and role, from names, shapes and the model's configuration alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from foreshock.daemon.formats.base import TensorInfo
from foreshock.daemon.roles.architecture import Architecture
from foreshock.daemon.roles.base import Layer, Role, RoleMap
from foreshock.daemon.roles.choice import best_towers
from foreshock.daemon.roles.heads import HeadsOverride, stated_heads
from foreshock.daemon.roles.layers import Model, layer_of
from foreshock.daemon.roles.model_config import ModelConfig
from foreshock.daemon.roles.problems import Problems, examples
from foreshock.daemon.roles.routers import missing_routers, router_traits
from foreshock.daemon.roles.towers import Tower, find_blocks
from foreshock.daemon.roles.wrappers import canonical_names

UNKNOWN = "unknown"
_MAX_TOWERS = 5


def resolve_with(
    architectures: Sequence[Architecture],
    tensors: Mapping[str, TensorInfo],
    config: ModelConfig,
    heads: HeadsOverride | None,
) -> RoleMap:
    """As `foreshock.daemon.roles.resolve`, with the tables given."""
    names, collisions = canonical_names(tensors)
    found = best_towers(find_blocks(names, architectures), architectures, config)
    if not found:
        unknown = _unknown(tensors, architectures)
        return RoleMap(UNKNOWN, (), tuple(sorted(tensors)), (*collisions, unknown))
    table = found[0].architecture
    traits, assumed = router_traits(table, config)
    model = Model(table, config, stated_heads(table.head_keys, config, heads), traits)
    problems = Problems()
    layers = _layers(found[0], model, tensors, problems)
    routed = any(Role.ROUTER in layer.parts for layer in layers)
    warnings = (*_left_out(found), *problems.sentences(), *(assumed if routed else missing_routers(config)))
    assigned = {part.parameter for layer in layers for part in layer.parts.values()}
    return RoleMap(table.name, layers, tuple(sorted(tensors.keys() - assigned)), (*collisions, *warnings))


def _layers(
    tower: Tower, model: Model, tensors: Mapping[str, TensorInfo], problems: Problems
) -> tuple[Layer, ...]:
    """The blocks in order; one in which nothing has a role is no layer."""
    blocks = {
        index: {suffix: tensors[saved] for suffix, saved in block.items()}
        for index, block in sorted(tower.blocks.items())
    }
    layers = (layer_of(model, index, block, problems.at(index)) for index, block in blocks.items())
    return tuple(layer for layer in layers if layer.parts)


def _left_out(towers: Sequence[Tower]) -> tuple[str, ...]:
    """The warning that other parameters end like those that are measured."""
    measured, *others = towers
    if not others:
        return ()
    shown = ", ".join(f"{_named(tower)} ({tower.num_layers} layers)" for tower in others[:_MAX_TOWERS])
    more = f" and {len(others) - _MAX_TOWERS} more" if len(others) > _MAX_TOWERS else ""
    sentence = (
        f"only {_named(measured)} ({measured.num_layers} layers) is measured;"
        f" parameters of the same names are left out below {shown}{more}"
    )
    return (sentence,)


def _named(tower: Tower) -> str:
    return f"{tower.path!r:.80}" if tower.path else "the top level"


def _unknown(tensors: Mapping[str, TensorInfo], architectures: Sequence[Architecture]) -> str:
    if not tensors:
        return "there are no tensors"
    known = ", ".join(architecture.name for architecture in architectures)
    return f"no architecture has any of these {len(tensors)} names: {examples(tensors)}; known are {known}"

"""One block of a tower becomes a `Layer`: roles from suffixes, then shapes, then heads, then rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from foreshock.daemon.formats.base import TensorInfo
from foreshock.daemon.roles.architecture import Architecture, Fused
from foreshock.daemon.roles.base import ATTENTION, Heads, Layer, Part, Role, RouterTraits
from foreshock.daemon.roles.heads import StatedHeads, heads_of_layer
from foreshock.daemon.roles.model_config import ModelConfig
from foreshock.daemon.roles.problems import Report
from foreshock.daemon.roles.routers import checked_router
from foreshock.daemon.roles.splits import equal_thirds, plain_part, split

_VECTORS = frozenset({Role.ROUTER_BIAS, Role.ROUTER_NORM})

LATENT_ATTENTION = (
    "multi-head latent attention: q, k and v differ in rows per head, so only whole matrices are measured"
)


@dataclass(frozen=True, slots=True)
class Model:
    """What holds for all layers of a checkpoint."""

    architecture: Architecture
    config: ModelConfig
    heads: StatedHeads
    router: RouterTraits


def layer_of(model: Model, index: int, block: Mapping[str, TensorInfo], report: Report) -> Layer:
    """Give roles to the tensors of one block.

    Args:
        block: tensors by their suffix below the block.
        report: is told what gets no role although its name has one, and why heads are unknown.
    """
    table = model.architecture
    suffixes = _suffixes_by_role(table, block, report)
    plain = {role: block[suffix] for role, suffix in suffixes.items()}
    fused = {each: block[each.suffix] for each in table.fused if _usable(each.suffix, block, 2, report)}
    transposed = _orientation(table, fused)
    if transposed is None and Role.O in plain:
        del plain[Role.O]
        report(f"{suffixes[Role.O]} gets no role: its orientation is that of {table.fused[0].suffix}")
    heads = _heads(model, plain, fused, block, report)
    parts: dict[Role, Part] = {}
    for each, tensor in fused.items():
        given = split(each, tensor, heads, model.config, report)
        parts |= given
        suffixes = dict.fromkeys(given, each.suffix) | suffixes
    for role in (role for role in ATTENTION if role in plain):
        parts[role] = plain_part(plain[role], transposed=bool(transposed))
    for role, tensor in checked_router(plain, model.config, report).items():
        parts[role] = plain_part(tensor)
    names = {role: table.canonical(index, suffixes[role]) for role in parts}
    return Layer(index, parts, names, heads, model.router)


def _suffixes_by_role(
    table: Architecture, block: Mapping[str, TensorInfo], report: Report
) -> dict[Role, str]:
    """For each role of a tensor of its own, the preferred suffix that the block has in a usable shape."""
    chosen: dict[Role, str] = {}
    for role, suffixes in table.roles.items():
        dimensions = 1 if role in _VECTORS else 2
        present = [suffix for suffix in suffixes if _usable(suffix, block, dimensions, report)]
        if present:
            chosen[role] = present[0]
    return chosen


def _usable(suffix: str, block: Mapping[str, TensorInfo], dimensions: int, report: Report) -> bool:
    """Whether the block has the tensor, with elements and the right number of dimensions."""
    tensor = block.get(suffix)
    if tensor is None:
        return False
    if len(tensor.shape) == dimensions and tensor.num_elements:
        return True
    report(f"{suffix} has shape {tensor.shape} where {dimensions} dimensions are expected, and gets no role")
    return False


def _orientation(table: Architecture, fused: Mapping[Fused, TensorInfo]) -> bool | None:
    """Whether attention is stored transposed; None when the tensor that would tell is missing."""
    for each in table.fused:
        if each.layout == "stacked":
            thirds = equal_thirds(each, fused[each]) if each in fused else None
            return thirds[1] if thirds else None
    return False


def _heads(
    model: Model,
    plain: Mapping[Role, TensorInfo],
    fused: Mapping[Fused, TensorInfo],
    block: Mapping[str, TensorInfo],
    report: Report,
) -> Heads | None:
    latent = (*model.architecture.latent, *(each.suffix for each in fused if each.layout == "latent"))
    if any(suffix in block for suffix in latent):
        report(LATENT_ATTENTION)
        return None
    sizes: dict[Role, int] = {}
    transposed = False
    for each, tensor in fused.items():
        if thirds := equal_thirds(each, tensor):
            rows, transposed = thirds
            sizes |= dict.fromkeys(each.roles, rows)
    for role in (role for role in ATTENTION if role in plain):
        sizes[role] = plain[role].shape[1 if (role is Role.O) is not transposed else 0]
    return heads_of_layer(model.heads, sizes, report)

"""What is a router, by its shape, and how it scores, by the configuration.

E experts, C model width: a router is (E, C), its correction bias (E,), the gain of the norm before it (C,).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from foreshock.daemon.formats.base import TensorInfo
from foreshock.daemon.roles.architecture import Architecture
from foreshock.daemon.roles.base import Role, RouterTraits
from foreshock.daemon.roles.model_config import ModelConfig
from foreshock.daemon.roles.problems import Report

NUM_EXPERTS_KEYS = ("num_local_experts", "num_experts", "n_routed_experts", "num_moe_experts")
SCORING_KEYS = ("scoring_func", "score_func", "moe_router_score_function")

_SCORINGS: Mapping[str, Literal["softmax", "sigmoid"]] = {"softmax": "softmax", "sigmoid": "sigmoid"}


def checked_router(
    found: Mapping[Role, TensorInfo], config: ModelConfig, report: Report
) -> dict[Role, TensorInfo]:
    """The layer's router, its bias and norm, without what cannot be one; empty without a router.

    Args:
        found: tensors by role, as their names say, with the right number of dimensions.
    """
    router = found.get(Role.ROUTER)
    if router is None:
        return {}
    num_experts, width = router.shape
    if num_experts > width and num_experts != config.integer(NUM_EXPERTS_KEYS):
        report(
            f"a matrix named like a router has shape {router.shape}: more rows than columns make it a"
            " dense gate, and it gets no role"
        )
        return {}
    checked = {Role.ROUTER: router}
    for role, wanted in ((Role.ROUTER_BIAS, num_experts), (Role.ROUTER_NORM, width)):
        vector = found.get(role)
        if vector is None:
            continue
        if vector.shape == (wanted,):
            checked[role] = vector
        else:
            report(f"{role} has shape {vector.shape}, but the router {router.shape}: it gets no role")
    return checked


def router_traits(architecture: Architecture, config: ModelConfig) -> tuple[RouterTraits, tuple[str, ...]]:
    """The traits of all routers, and a warning when the scoring had to be assumed."""
    usual = architecture.router
    told = config.text(SCORING_KEYS)
    if scoring := _SCORINGS.get(told):
        return replace(usual, scoring=scoring), ()
    if told:
        unknown = f"{config.source}: routers score by {told!r:.40}, which is not known"
        return usual, (f"{unknown}; {usual.scoring} is assumed",)
    if not architecture.scoring_varies:
        return usual, ()
    warning = (
        f"{architecture.name} does not save how routers score, and {usual.scoring} is assumed:"
        f" put {SCORING_KEYS[0]} (softmax or sigmoid) into a config.json beside the checkpoint"
    )
    return usual, (warning,)


def missing_routers(config: ModelConfig) -> tuple[str, ...]:
    """The warning that the configuration declares experts, for a checkpoint in which no router was found."""
    declared = config.integer(NUM_EXPERTS_KEYS) or 0
    if declared < 2:
        return ()
    return (f"{config.source} declares {declared} experts, but no name is known as that of a router",)

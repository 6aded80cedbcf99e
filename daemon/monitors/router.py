"""Whether a router still tells experts apart, from its weights alone."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from foreshock.daemon.linalg import conditioning, isotropic_entropy, row_norms, similarity
from foreshock.daemon.monitors.base import LayerChange, LayerState, Monitor, Reading
from foreshock.daemon.monitors.family import NONFINITE, PAPER, ZERO_MATRIX, undefined
from foreshock.daemon.monitors.trust import Update, is_matrix
from foreshock.daemon.roles.base import Role
from foreshock.storage.records import Metric

ZERO_MEAN = "zero_mean"
ZERO_ROW = "zero_row"
SINGLE_EXPERT = "single_expert"

Quantity = tuple[str, float | None, str]
"""Last part of the metric's name, value, and the reason should the value be None."""


class RouterConditioning(Monitor):
    """`router.*` of the matrix whose rows are the experts' directions."""

    metrics = (
        Metric(
            "router.conditioning",
            "ε = maxᵢ ‖wᵢ − w̄‖ / ‖w̄‖ over the rows w and their mean w̄. A small ε is a redundant router:"
            " below 1, all cosines of rows are at least 1 − 2ε². Undefined for a zero mean.",
            low=0.0,
            source=f"{PAPER} §4",
        ),
        Metric(
            "router.similarity",
            "Mean cosine of two different rows, from −1/(E − 1). Undefined if a row is zero.",
            low=-1.0,
            high=1.0,
            source=f"{PAPER} Eq. 7",
        ),
        Metric(
            "router.similarity_max",
            "Largest cosine of two different rows. Undefined if a row is zero.",
            low=-1.0,
            high=1.0,
        ),
        Metric("router.row_norm_min", "Smallest norm of a row.", low=0.0),
        Metric("router.row_norm_mean", "Mean norm of the rows.", low=0.0),
        Metric("router.row_norm_max", "Largest norm of a row.", low=0.0),
        Metric(
            "router.row_norm_ratio",
            "Largest norm of a row over the mean, at most E: the row of a stable winner grows."
            " Undefined for a zero matrix.",
            low=1.0,
        ),
        Metric(
            "router.entropy_isotropic",
            "Mean entropy of the distribution over all E experts, for inputs drawn uniformly from the sphere"
            " of radius √M and multiplied by the gain of the norm before the router; sigmoid scores are"
            " normalised, the correction bias is left out. At most ln E. A proxy from weights alone, not"
            " the entropy over real tokens.",
            unit="nats",
            low=0.0,
        ),
        Metric(
            "router.entropy_isotropic_ratio",
            "router.entropy_isotropic over ln E, its largest value. Undefined for a single expert.",
            low=0.0,
            high=1.0,
        ),
    )

    def of_state(self, state: LayerState) -> Iterator[Reading]:
        """The layer's router, if it has one."""
        if not is_matrix(state, Role.ROUTER):
            return
        name = state.names[Role.ROUTER]
        if not state.finite(Role.ROUTER):
            yield from undefined(self.metrics, Role.ROUTER, name, NONFINITE)
            return
        rows_EM = state.tensors[Role.ROUTER].to(torch.float64)
        for quantities in (_directions(rows_EM), _norms(rows_EM), _entropy(rows_EM, state)):
            for quantity, value, otherwise in quantities:
                reason = otherwise if value is None else ""
                yield Reading(f"router.{quantity}", Role.ROUTER, name, value, reason=reason)


def _directions(rows_EM: Tensor) -> Iterator[Quantity]:
    yield "conditioning", conditioning(rows_EM), ZERO_MEAN
    cosines = similarity(rows_EM)
    otherwise = ZERO_ROW if len(rows_EM) > 1 else SINGLE_EXPERT
    yield "similarity", cosines.mean if cosines else None, otherwise
    yield "similarity_max", cosines.largest if cosines else None, otherwise


def _norms(rows_EM: Tensor) -> Iterator[Quantity]:
    norms_E = row_norms(rows_EM)
    mean, largest = norms_E.mean().item(), norms_E.amax().item()
    yield "row_norm_min", norms_E.amin().item(), ""
    yield "row_norm_mean", mean, ""
    yield "row_norm_max", largest, ""
    yield "row_norm_ratio", largest / mean if mean else None, ZERO_MATRIX


def _entropy(rows_EM: Tensor, state: LayerState) -> Iterator[Quantity]:
    traits, gain_M = state.layer.router, state.tensors.get(Role.ROUTER_NORM)
    entropy: float | None = None
    if gain_M is None:
        entropy = isotropic_entropy(rows_EM, traits.scoring)
    elif state.finite(Role.ROUTER_NORM):
        gain_M = gain_M.to(torch.float64) + traits.norm_offset
        entropy = isotropic_entropy(rows_EM * gain_M, traits.scoring)
    yield "entropy_isotropic", entropy, NONFINITE
    largest = math.log(len(rows_EM))
    ratio = None if entropy is None or not largest else entropy / largest
    yield "entropy_isotropic_ratio", ratio, NONFINITE if largest else SINGLE_EXPERT


class RouterBias(Monitor):
    """`router.bias_*` of the bias that balances load by steering the choice of experts."""

    metrics = (
        Metric(
            "router.bias_spread",
            "Largest minus smallest correction bias: how hard the choice of experts must be steered.",
            low=0.0,
            source="arXiv:2408.15664 for the bias",
        ),
        Metric(
            "router.bias_drift",
            "Largest change of any expert's correction bias since the base.",
            low=0.0,
            source="arXiv:2408.15664 for the bias",
        ),
    )

    def of_state(self, state: LayerState) -> Iterator[Reading]:
        """The spread, if the layer has such a bias."""
        bias_E = state.tensors.get(Role.ROUTER_BIAS)
        if bias_E is None or not bias_E.numel():
            return
        finite = state.finite(Role.ROUTER_BIAS)
        bias_E = bias_E.to(torch.float64)
        yield Reading(
            "router.bias_spread",
            Role.ROUTER_BIAS,
            state.names[Role.ROUTER_BIAS],
            (bias_E.amax() - bias_E.amin()).item() if finite else None,
            reason="" if finite else NONFINITE,
        )

    def of_change(self, change: LayerChange) -> Iterator[Reading]:
        """The drift, if the layer has such a bias."""
        bias_E = change.after.tensors.get(Role.ROUTER_BIAS)
        if bias_E is None or not bias_E.numel():
            return
        update = Update(change.before, change.after, Role.ROUTER_BIAS)
        drift = None if update.obstacle else update.change.dense().abs().amax().item()
        yield Reading("router.bias_drift", update.role, update.name, drift, reason=update.obstacle)

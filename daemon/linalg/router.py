"""How well a router's rows tell experts apart: rows w₁ … w_E of width M, their mean w̄.

Source: arXiv:2606.28116 §4 for the conditioning ε, Eq. 7 for the similarity. The entropy over isotropic
inputs is ours; it is sampled, since the expansion for small logits, ln E − ‖W − 1w̄ᵀ‖_F² / (2E), leaves
its range once logits grow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from foreshock.daemon.linalg.stored import or_one, vector_norms

NUM_SAMPLES = 2048
SEED = 2_048
_SAMPLES_AT_A_TIME = 256


def row_norms(rows_EM: Tensor) -> Tensor:
    """‖wᵢ‖, (E,)."""
    return vector_norms(rows_EM, 1)


def conditioning(rows_EM: Tensor) -> float | None:
    """ε = maxᵢ ‖wᵢ − w̄‖ / ‖w̄‖: small for a redundant router, about √(E − 1) or above at random init.

    For ε < 1 every cos(wᵢ, wⱼ) is at least 1 − 2ε²; identical rows have ε = 0.

    Returns:
        At least 0; None when the mean is zero, or cancels down to rounding errors, or without elements.
    """
    if not rows_EM.numel():
        return None
    mean_M = rows_EM.mean(0)
    mean_norm = vector_norms(mean_M, 0)
    rounding = torch.finfo(rows_EM.dtype).eps * row_norms(rows_EM).sum()
    if mean_norm <= rounding:
        return None
    return (row_norms(rows_EM - mean_M).amax() / mean_norm).item()


@dataclass(frozen=True, slots=True)
class Similarity:
    """Cosines of pairs of different rows.

    Attributes:
        mean: over all pairs, in [−1/(E − 1), 1].
        largest: of any pair, in [−1, 1].
    """

    mean: float
    largest: float


def similarity(rows_EM: Tensor) -> Similarity | None:
    """Mean and largest cos(wᵢ, wⱼ) over i ≠ j; None for fewer than two rows, or if any row is zero.

    The mean is (E‖ū‖² − 1) / (E − 1) with ū the mean of the unit rows.
    """
    num_experts = len(rows_EM)
    norms_E = row_norms(rows_EM)
    if num_experts < 2 or (norms_E == 0).any():
        return None
    unit_EM = rows_EM / norms_E[:, None]
    mean = (num_experts * unit_EM.mean(0).square().sum() - 1) / (num_experts - 1)
    cosines_EE = (unit_EM @ unit_EM.mT).fill_diagonal_(-1)
    return Similarity(mean.clamp(-1 / (num_experts - 1), 1).item(), cosines_EE.amax().clamp(-1, 1).item())


def isotropic_entropy(
    rows_EM: Tensor,
    scoring: Literal["softmax", "sigmoid"] = "softmax",
    num_samples: int = NUM_SAMPLES,
    seed: int = SEED,
) -> float:
    """Mean routing entropy over inputs x drawn uniformly from the sphere of radius √M.

    The full distribution over experts is looked at, before any top-k. The inputs come from a generator on
    the CPU: the same seed gives the same inputs on every device.

    Args:
        rows_EM: with the gain γ of the norm before the router multiplied in: W diag(γ).
        scoring: softmax of the logits, or their sigmoids divided by the sum of all E.
        num_samples: inputs drawn.
        seed: of the generator.

    Returns:
        In nats, in [0, ln E]; 0 for a single row, or none.
    """
    width = rows_EM.shape[1]
    generator = torch.Generator().manual_seed(seed)
    total = torch.zeros((), dtype=rows_EM.dtype, device=rows_EM.device)
    for start in range(0, num_samples, _SAMPLES_AT_A_TIME):
        size = min(_SAMPLES_AT_A_TIME, num_samples - start)
        inputs = torch.randn(size, width, generator=generator, dtype=torch.float64)
        inputs *= math.sqrt(width) / or_one(vector_norms(inputs, 1, keepdim=True))
        logits = inputs.to(rows_EM) @ rows_EM.mT
        total += _entropies(logits if scoring == "softmax" else logsigmoid(logits)).sum()
    return (total / num_samples).clamp(0, math.log(max(1, len(rows_EM)))).item()


def _entropies(logits: Tensor) -> Tensor:
    """Entropy of every row's softmax; that of log σ(l) are the sigmoids, normalised without underflow."""
    log_shares = torch.log_softmax(logits, -1)
    return -(log_shares.exp() * log_shares).sum(-1)

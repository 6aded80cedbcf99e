"""How much of a difference of two snapshots is the rounding of their dtype."""

from __future__ import annotations

import math

import torch


def rounding_noise(dtype: str) -> float:
    """The c in ‖noise‖_F ≈ c · ‖W‖_F, for the difference of two snapshots rounded independently.

    A value x in [2ᵉ, 2ᵉ⁺¹) is rounded to multiples of 2ᵉ · ε; the error is uniform and its variance
    2²ᵉ ε² / 12, twice that for a difference. Averaged over a mantissa m = x / 2ᵉ whose logarithm is
    uniform, E[m⁻²] = 3 / (8 ln 2), hence c = ε / (4 √ln 2) ≈ 0.30 ε: 2.3e-3 for bfloat16, 3.6e-8 for
    float32. Values in the subnormal range of a narrow dtype are rounded more coarsely than this.

    Args:
        dtype: torch's name of a floating-point dtype without the prefix, `bfloat16`.
    """
    return torch.finfo(getattr(torch, dtype)).eps / (4 * math.sqrt(math.log(2)))


def difference_noise(before: tuple[float, str], after: tuple[float, str]) -> float:
    """Frobenius norm of the rounding noise in after − before, each given as its norm and dtype.

    For equal norms and dtypes this is `rounding_noise(dtype)` times the norm.
    """
    return math.hypot(*(norm * rounding_noise(dtype) for norm, dtype in (before, after))) / math.sqrt(2)

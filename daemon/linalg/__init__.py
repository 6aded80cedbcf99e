"""Pure functions of weights: norms, spectra, products of heads, routers, rounding noise.

They run on whatever device the tensors are on, and compute in the dtype they are given or told
(float64 unless told otherwise); weights stay in their stored dtype and are converted block by block.
Finite input is assumed: what decomposes refuses NaN and Inf with `NumericalError`, the rest answers NaN.

Letters in shapes, here and in all files of this package:

    H  query heads              K  key and value heads, H = K · G
    G  query heads per key      D  features per head
    M  width of the model       E  experts
    R  rows                     C  columns
    N  singular values          B  blocks stacked on each other
"""

from __future__ import annotations

from foreshock.daemon.linalg.rounding import difference_noise, rounding_noise
from foreshock.daemon.linalg.router import (
    Similarity,
    conditioning,
    isotropic_entropy,
    row_norms,
    similarity,
)
from foreshock.daemon.linalg.score_operator import QKIncrement, qk_increment, score_norms
from foreshock.daemon.linalg.spectrum import (
    Spectrum,
    blockwise_singular_values,
    headwise_singular_values,
    singular_values,
    spectra,
)
from foreshock.daemon.linalg.stored import Stored, cosine, count_nonfinite, frobenius_norm, gram

__all__ = [
    "QKIncrement",
    "Similarity",
    "Spectrum",
    "Stored",
    "blockwise_singular_values",
    "conditioning",
    "cosine",
    "count_nonfinite",
    "difference_noise",
    "frobenius_norm",
    "gram",
    "headwise_singular_values",
    "isotropic_entropy",
    "qk_increment",
    "rounding_noise",
    "row_norms",
    "score_norms",
    "similarity",
    "singular_values",
    "spectra",
]

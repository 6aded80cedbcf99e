"""Eigenvalues of Gram matrices that are right or refused.

LAPACK may never return on NaN or Inf, and has been seen to return zeros for large matrices without an
error: the input is checked before, the sum of the eigenvalues after.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from foreshock.daemon.errors import NumericalError

_LinAlgError: type[RuntimeError] = torch.linalg.LinAlgError  # type: ignore[attr-defined]  # not in its stub


def eigenvalues(gram: Tensor, energy: Tensor) -> Tensor:
    """Eigenvalues of symmetric positive semi-definite matrices, largest first.

    Args:
        gram: (..., N, N), scaled so that its largest entries are of the order of 1 or below.
        energy: (...), what the eigenvalues must add up to, computed in another way.

    Returns:
        (..., N), negative rounding errors replaced by 0. An eigenvalue carries an absolute error of a
        few ε(dtype): of singular values, those below √ε of the largest are noise.

    Raises:
        NumericalError: NaN or Inf in the input, no convergence, or another sum than `energy`.
    """
    if not gram.numel():
        return gram.new_zeros(gram.shape[:-1])
    refuse_nonfinite(gram)
    try:
        values: Tensor = torch.linalg.eigvalsh(gram)
    except _LinAlgError as error:
        raise NumericalError(f"eigenvalues of {tuple(gram.shape)}: {error}") from error
    deviation = (values.sum(-1) - energy).abs().max().item()
    tolerance = math.sqrt(torch.finfo(gram.dtype).eps)
    if not deviation <= tolerance:
        raise NumericalError(
            f"eigenvalues of {tuple(gram.shape)} miss the squared Frobenius norm by {deviation:.3g},"
            f" more than {tolerance:.3g}"
        )
    return values.flip(-1).clamp(min=0)


def square_root(gram: Tensor) -> Tensor:
    """S with S Sᵀ = gram, for symmetric positive semi-definite matrices that may lack rank.

    Args:
        gram: (..., N, N).

    Raises:
        NumericalError: NaN or Inf in the input, or no convergence.
    """
    refuse_nonfinite(gram)
    try:
        values, vectors = torch.linalg.eigh(gram)
    except _LinAlgError as error:
        raise NumericalError(f"eigenvectors of {tuple(gram.shape)}: {error}") from error
    root: Tensor = vectors * values.clamp(min=0).sqrt().unsqueeze(-2)
    return root


def refuse_nonfinite(values: Tensor) -> None:
    """Raise `NumericalError` if any value is NaN or Inf."""
    if not torch.isfinite(values).all():
        raise NumericalError(f"NaN or Inf in a matrix of shape {tuple(values.shape)} to be decomposed")

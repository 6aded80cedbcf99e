"""Singular values through the smaller Gram matrix, and what is read from them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from foreshock.daemon.linalg.eigenvalues import eigenvalues, refuse_nonfinite
from foreshock.daemon.linalg.stored import MAX_ELEMENTS, Stored, frobenius_norm, gram, or_one, vector_norms


def singular_values(matrix: Tensor) -> Tensor:
    """Singular values of one matrix or of a batch, largest first.

    The matrix is divided by its Frobenius norm, so neither 1e20 nor 1e-30 leaves the range of its dtype,
    and the eigenvalues of its Gram matrix are the energy shares, which must add up to 1.

    Args:
        matrix: (..., R, C) in the dtype to compute in.

    Returns:
        (..., min(R, C)); all 0 for a zero matrix. Values below √ε(dtype) · σ₁ are noise.

    Raises:
        NumericalError: NaN or Inf in the input, or a result that contradicts its norm.
    """
    norms = vector_norms(matrix, (-2, -1))
    refuse_nonfinite(norms)
    unit = matrix / or_one(norms)[..., None, None]
    wide = matrix.shape[-2] <= matrix.shape[-1]
    shares = eigenvalues(unit @ unit.mT if wide else unit.mT @ unit, (norms > 0).to(matrix.dtype))
    return norms.unsqueeze(-1) * shares.sqrt()


def blockwise_singular_values(
    matrix: Stored, dtype: torch.dtype = torch.float64, max_elements: int = MAX_ELEMENTS
) -> Tensor:
    """`singular_values` of one large matrix, converted block by block.

    Args:
        matrix: (R, C).
        dtype: to compute in.
        max_elements: of a block.

    Returns:
        (min(R, C),).

    Raises:
        NumericalError: as for `singular_values`.
    """
    norm = torch.tensor(frobenius_norm(matrix, dtype, max_elements), dtype=dtype)
    refuse_nonfinite(norm)
    if norm == 0:
        return torch.zeros(min(matrix.shape), dtype=dtype, device=matrix.tensor.device)
    energy = torch.ones((), dtype=dtype, device=matrix.tensor.device)
    shares = eigenvalues(gram(matrix, norm.item(), dtype, max_elements), energy)
    return norm.item() * shares.sqrt()


def headwise_singular_values(
    heads_HRC: Stored, dtype: torch.dtype = torch.float64, max_elements: int = MAX_ELEMENTS
) -> Tensor:
    """`singular_values` of every head, converted a few heads at a time.

    Returns:
        (H, min(R, C)).

    Raises:
        NumericalError: as for `singular_values`.
    """
    parts = [singular_values(part.dense(dtype)) for part in heads_HRC.heads(max_elements)]
    return torch.cat(parts)


@dataclass(frozen=True, slots=True)
class Spectrum:
    """What a spectrum says; pᵢ = σᵢ² / Σσⱼ² are its energy shares.

    All but the norms are None for the zero matrix, and do not depend on the matrix's scale.

    Attributes:
        frobenius_norm: √Σσᵢ².
        spectral_norm: σ₁.
        stable_rank: Σσᵢ² / σ₁², from 1 to the rank. Source: Rudelson & Vershynin 2007.
        spectral_entropy: −Σ pᵢ ln pᵢ in nats, from 0 to ln rank. Source: arXiv:2606.28116 §3.2, α = 2.
        effective_rank: exp(spectral_entropy), from 1 to the rank. Source: S₂ there.
        top_energy: p₁, in (0, 1].
    """

    frobenius_norm: float
    spectral_norm: float
    stable_rank: float | None = None
    spectral_entropy: float | None = None
    effective_rank: float | None = None
    top_energy: float | None = None


def spectra(sigma_HN: Tensor) -> tuple[Spectrum, ...]:
    """The spectrum of every row of singular values, largest first."""
    sigma_HN = sigma_HN.to("cpu", torch.float64)
    if not sigma_HN.shape[-1]:
        return (Spectrum(0.0, 0.0),) * len(sigma_HN)
    top_H = sigma_HN[:, 0]
    relative_HN = (sigma_HN / or_one(top_H).unsqueeze(-1)).square()
    stable_rank_H = relative_HN.sum(-1)
    shares_HN = relative_HN / or_one(stable_rank_H).unsqueeze(-1)
    entropy_H = torch.special.entr(shares_HN).sum(-1)
    columns = (
        top_H * stable_rank_H.sqrt(),
        top_H,
        stable_rank_H,
        entropy_H,
        entropy_H.exp(),
        shares_HN[:, 0],
    )
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return tuple(Spectrum(*row) if row[0] else Spectrum(0.0, 0.0) for row in rows)

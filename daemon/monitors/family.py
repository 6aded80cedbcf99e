"""What the monitors have in common: reasons, heads, and the six quantities of every spectral family."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, fields

from foreshock.daemon.linalg import Spectrum, Stored
from foreshock.daemon.monitors.base import Reading
from foreshock.daemon.roles.base import ATTENTION, Heads, Role
from foreshock.storage.records import Metric

NONFINITE = "nonfinite"
NOT_IN_BASE = "not_in_base"
SHAPE_CHANGED = "shape_changed"
BELOW_RESOLUTION = "below_resolution"
ZERO_UPDATE = "zero_update"
ZERO_MATRIX = "zero_matrix"

MATRICES = (*ATTENTION, Role.ROUTER)
"""Roles whose spectra and updates are measured."""

QUANTITIES = tuple(field.name for field in fields(Spectrum))

PAPER = "arXiv:2606.28116"


def spectral_metrics(family: str, matrix: str) -> tuple[Metric, ...]:
    """Catalogue entries of a family, in the order of `QUANTITIES`.

    Args:
        family: first part of the metrics' names.
        matrix: what is decomposed, for people.
    """
    entropy = f"{PAPER} §3.2, α = 2"
    return (
        Metric(f"{family}.frobenius_norm", f"Frobenius norm √Σσ² of {matrix}.", low=0.0),
        Metric(f"{family}.spectral_norm", f"Largest singular value σ₁ of {matrix}.", low=0.0),
        Metric(
            f"{family}.stable_rank",
            f"Σσ² / σ₁² of {matrix}: how many directions as strong as the first would hold its energy."
            " At most the rank; undefined for a zero matrix.",
            low=1.0,
            source="Rudelson & Vershynin 2007",
        ),
        Metric(
            f"{family}.spectral_entropy",
            f"−Σ p ln p over the energy shares p = σ² / Σσ² of {matrix}."
            " At most ln rank; undefined for a zero matrix.",
            unit="nats",
            low=0.0,
            source=entropy,
        ),
        Metric(
            f"{family}.effective_rank",
            f"S₂, the exponential of the spectral entropy of {matrix}: in how many directions its energy"
            " lies. At most the rank; undefined for a zero matrix.",
            low=1.0,
            source=entropy,
        ),
        Metric(
            f"{family}.top_energy",
            f"Share σ₁² / Σσ² of the energy of {matrix} in its first direction. Undefined for a zero matrix.",
            low=0.0,
            high=1.0,
            source=f"{PAPER} §3.2",
        ),
    )


def spectral_readings(
    family: str,
    role: str,
    parameter: str,
    spectrum: Spectrum,
    *,
    zero: str,
    unit: str = "",
    doubt: str = "",
) -> Iterator[Reading]:
    """A spectrum as readings.

    Args:
        zero: the reason of what is undefined because the matrix is zero; its norms are 0 and need none.
        doubt: why the values are not to be trusted; empty when they are.
    """
    for quantity, value in zip(QUANTITIES, astuple(spectrum), strict=True):
        reason = zero if value is None else doubt
        yield Reading(f"{family}.{quantity}", role, parameter, value, unit, reason)


def undefined(metrics: tuple[Metric, ...], role: str, parameter: str, reason: str) -> Iterator[Reading]:
    """Readings of a whole parameter for which none of the metrics can be computed."""
    for metric in metrics:
        yield Reading(metric.name, role, parameter, None, reason=reason)


def by_head(matrix: Stored, role: Role, heads: Heads) -> Stored:
    """The heads of q, k, v, of shape (H or K, D, M), or those of o, which are columns: (H, M, D)."""
    num_heads = heads.of(role)
    return matrix.split_columns(num_heads) if role is Role.O else matrix.split_rows(num_heads)

"""Spectra of weights and of their updates, whole and per head."""

from __future__ import annotations

from collections.abc import Iterator

from foreshock.daemon.linalg import (
    Stored,
    blockwise_singular_values,
    headwise_singular_values,
    spectra,
)
from foreshock.daemon.monitors.base import LayerChange, LayerState, Monitor, Reading
from foreshock.daemon.monitors.family import (
    MATRICES,
    NONFINITE,
    ZERO_MATRIX,
    ZERO_UPDATE,
    by_head,
    spectral_metrics,
    spectral_readings,
    undefined,
)
from foreshock.daemon.monitors.trust import is_matrix, updates
from foreshock.daemon.roles.base import ATTENTION, Heads, Role


class UpdateSpectra(Monitor):
    """`update.*`: ΔW of q, k, v, o and the router as a whole; of q, k, v, o also per head."""

    metrics = spectral_metrics("update", "the update ΔW = W_t − W_{t−δ}")

    def of_change(self, change: LayerChange) -> Iterator[Reading]:
        """The whole matrix of a role first, then its heads."""
        for update in updates(change, MATRICES):
            if update.obstacle:
                yield from undefined(self.metrics, update.role, update.name, update.obstacle)
                continue
            heads = change.after.heads if update.role in ATTENTION else None
            name = update.name
            yield from _readings(
                "update", update.role, name, update.change, heads=heads, zero=ZERO_UPDATE, doubt=update.doubt
            )


class WeightSpectra(Monitor):
    """`weight.*`: W itself, q, k, v, o and the router as a whole; q and k also per head.

    These stay flat while the spectra of updates collapse: they are what those are compared with.
    """

    metrics = spectral_metrics("weight", "the weight W")

    def of_state(self, state: LayerState) -> Iterator[Reading]:
        """The whole matrix of a role first, then its heads."""
        for role in (role for role in MATRICES if is_matrix(state, role)):
            name = state.names[role]
            if not state.finite(role):
                yield from undefined(self.metrics, role, name, NONFINITE)
                continue
            heads = state.heads if role in {Role.Q, Role.K} else None
            weight = Stored(state.tensors[role])
            yield from _readings("weight", role, name, weight, heads=heads, zero=ZERO_MATRIX)


def _readings(
    family: str,
    role: Role,
    name: str,
    matrix: Stored,
    *,
    heads: Heads | None,
    zero: str,
    doubt: str = "",
) -> Iterator[Reading]:
    """Of the whole matrix, and of its heads where they are given."""
    (whole,) = spectra(blockwise_singular_values(matrix).unsqueeze(0))
    yield from spectral_readings(family, role, name, whole, zero=zero, doubt=doubt)
    if heads is None:
        return
    for head, spectrum in enumerate(spectra(headwise_singular_values(by_head(matrix, role, heads)))):
        yield from spectral_readings(
            family, role, name, spectrum, zero=zero, unit=f"head.{head}", doubt=doubt
        )

"""The score operator W_qᵀ W_k of each head: how it changes, and how large it is."""

from __future__ import annotations

import math
from collections.abc import Iterator

from foreshock.daemon.linalg import Stored, qk_increment, score_norms, spectra
from foreshock.daemon.monitors.base import LayerChange, LayerState, Monitor, Reading
from foreshock.daemon.monitors.family import (
    PAPER,
    ZERO_MATRIX,
    ZERO_UPDATE,
    by_head,
    spectral_metrics,
    spectral_readings,
)
from foreshock.daemon.monitors.trust import Update, is_matrix, updates
from foreshock.daemon.roles.base import Heads, Role
from foreshock.storage.records import Metric

ROLE = "qk"


class QKIncrements(Monitor):
    """`qk_increment.*` (Δ1), `qk_first_order.*` (Δ2) and `qk_second_order.*` (Δ3) of every query head.

    Needs the number of heads, and q and k that can be compared: what stands in the way is said by the
    updates of q and k themselves.
    """

    metrics = (
        *spectral_metrics("qk_increment", "Δ1 = Δ2 + Δ3, the change of a head's score operator W_qᵀW_k"),
        *spectral_metrics("qk_first_order", "Δ2 = ΔW_qᵀW_k + W_qᵀΔW_k of a head, the earliest signal"),
        *spectral_metrics("qk_second_order", "Δ3 = ΔW_qᵀΔW_k of a head"),
    )

    def of_change(self, change: LayerChange) -> Iterator[Reading]:
        """All heads of one increment, then of the next."""
        both = tuple(updates(change, (Role.Q, Role.K)))
        heads = change.after.heads
        if heads is None or len(both) < 2 or any(update.obstacle for update in both):
            return
        q, k = both
        found = qk_increment(_by_head(q, heads), _by_head(k, heads))
        zero = ZERO_MATRIX if q.norm and k.norm else ZERO_UPDATE
        families = (
            ("qk_increment", found.total),
            ("qk_first_order", found.first_order),
            ("qk_second_order", found.second_order),
        )
        for family, sigma_HN in families:
            for head, spectrum in enumerate(spectra(sigma_HN)):
                yield from spectral_readings(
                    family,
                    ROLE,
                    _name(change.after),
                    spectrum,
                    zero=zero,
                    unit=f"head.{head}",
                    doubt=q.doubt or k.doubt,
                )


class LogitBound(Monitor):
    """`qk.logit_bound` of every query head."""

    metrics = (
        Metric(
            "qk.logit_bound",
            "σ₁(W_qᵀW_k) / √D of a head: the largest attention logit that two inputs of norm 1 can have,"
            " at distance 0 and without a norm of queries and keys.",
            low=0.0,
            source=f"{PAPER} §3.2 for the operator; the bound is ours",
        ),
    )

    def of_state(self, state: LayerState) -> Iterator[Reading]:
        """All heads, if their number is known and q and k are finite."""
        heads = state.heads
        if heads is None or not all(is_matrix(state, r) and state.finite(r) for r in (Role.Q, Role.K)):
            return
        q, k = (by_head(Stored(state.tensors[role]), role, heads) for role in (Role.Q, Role.K))
        for head, norm in enumerate(score_norms(q, k).tolist()):
            bound = norm / math.sqrt(heads.head_dim)
            yield Reading("qk.logit_bound", ROLE, _name(state), bound, f"head.{head}")


def _by_head(update: Update, heads: Heads) -> tuple[Stored, Stored]:
    return by_head(update.base, update.role, heads), by_head(update.change, update.role, heads)


def _name(state: LayerState) -> str:
    return f"{state.names[Role.Q]} + {state.names[Role.K]}"

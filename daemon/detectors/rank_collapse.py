"""The updates of queries and keys shrink into few directions: S₂ against its own recent past.

A biased error in the attention gradient adds the same direction at every step; noise does not. So the
effective rank of ΔW_q, and of the first-order increment Δ2 of the heads' score operators, falls, and
consecutive updates come to point the same way. Persistence follows the fall one checkpoint later, as its
first pair still straddles the onset: a fall alone is a warning, with persistence it is critical.

In the first few hundred steps S₂ falls in healthy runs too; a series is judged only once it has a past.

Source: arXiv:2606.28116 §3.2 for S₂ as the signal. Thresholds: in eight runs of the demo's trainer (four
seeds, with and without the fault) the share was at most 0.35 at the first checkpoint after the onset and
never below 0.81 in health; persistence was at least 0.71 one checkpoint later, and below 0.62 in health.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median

from foreshock.daemon.detectors.base import Detector, History
from foreshock.storage.records import Finding

LAG = 1
FALL = 0.5
"""S₂ below so large a share of its usual value is a collapse."""
PERSISTENCE = 0.65
"""A collapse whose consecutive updates have at least this cosine is critical."""
PAST = 8
"""Points that the usual value is the median of; points of a collapse do not count among them."""
MIN_PAST = 6
"""Points before which a series has no usual value."""

SIGNALS = (
    ("S₂ of ΔW_q", "update.effective_rank", "q"),
    ("S₂ of ΔW_k", "update.effective_rank", "k"),
    ("S₂ of Δ2 (median over heads)", "qk_first_order.effective_rank", "qk"),
)
"""How each signal is called, its metric and its role."""


@dataclass(frozen=True, slots=True)
class Fall:
    """One signal of a layer, below its usual value."""

    signal: str
    now: float
    usual: float

    @property
    def share(self) -> float:
        """What is left of the usual value."""
        return self.now / self.usual


class RankCollapse(Detector):
    """Speaks of a layer when it begins to collapse, and again when persistence confirms it."""

    name = "rank_collapse"

    def judge(self, history: History) -> Iterable[Finding]:
        """At most one finding a layer, of its deepest fall."""
        persistence = _persistence(history)
        falls: dict[int, list[tuple[Fall, bool]]] = {}
        for signal, metric, role in SIGNALS:
            for layer, values in _by_layer(history, metric, role).items():
                trail = list(falls_along(signal, values))
                if values and max(values) == history.step and trail[-1] is not None:
                    began = len(trail) < 2 or trail[-2] is None
                    falls.setdefault(layer, []).append((trail[-1], began))
        for layer, found in sorted(falls.items()):
            deepest = min((fall for fall, _ in found), key=lambda fall: fall.share)
            before, now = persistence.get(layer, (0.0, 0.0))
            if now >= PERSISTENCE and before < PERSISTENCE:
                yield self._finding(layer, deepest, now, history.step, confirmed=True)
            elif all(began for _, began in found):
                yield self._finding(layer, deepest, now, history.step, confirmed=now >= PERSISTENCE)

    def _finding(self, layer: int, fall: Fall, persistence: float, step: int, *, confirmed: bool) -> Finding:
        said = (
            f"In layer {layer}, {fall.signal} fell to {fall.now:.1f} at step {step},"
            f" {1 - fall.share:.0%} below its usual {fall.usual:.1f}"
        )
        meaning = (
            f", and consecutive updates point the same way (cosine {persistence:.2f}). A biased error is at"
            " work, as low-precision attention makes it, and the loss will follow: look at the attention"
            " kernel's precision, and keep the checkpoint before this began."
            if confirmed
            else ": its updates shrank into few directions. The next checkpoint tells whether this persists."
        )
        return Finding(
            rule=self.name,
            subject=f"layer {layer}",
            step=step,
            severity="critical" if confirmed else "warning",
            message=said + meaning,
            layer=layer,
            evidence={
                "signal": fall.signal,
                "value": fall.now,
                "usual": fall.usual,
                "persistence": persistence,
            },
        )


def falls_along(signal: str, values: Mapping[int, float]) -> Iterator[Fall | None]:
    """For every point in step order, its fall below the usual value, or None.

    The usual value is the median of the last `PAST` points that were no falls themselves, so that a
    collapse does not become usual.
    """
    healthy: list[float] = []
    for _, value in sorted(values.items()):
        usual = median(healthy[-PAST:]) if len(healthy) >= MIN_PAST else None
        if usual is not None and value < FALL * usual:
            yield Fall(signal, value, usual)
        else:
            healthy.append(value)
            yield None


def _by_layer(history: History, metric: str, role: str) -> dict[int, dict[int, float]]:
    """Per layer and step, the whole matrix's value, or the median over heads of a per-head metric."""
    per_head = role == "qk"
    found: dict[int, dict[int, list[float]]] = {}
    for key, points in history.points(metric, role=role, lag=LAG):
        if key.layer is not None and bool(key.unit) == per_head:
            steps = found.setdefault(key.layer, {})
            for point in points:
                steps.setdefault(point.step, []).append(point.value)
    return {layer: {step: median(values) for step, values in steps.items()} for layer, steps in found.items()}


def _persistence(history: History) -> dict[int, tuple[float, float]]:
    """Per layer, the larger persistence of ΔW_q and ΔW_k: at the point before, and at the step judged."""
    found: dict[int, tuple[float, float]] = {}
    for role in ("q", "k"):
        for layer, values in _by_layer(history, "update.persistence", role).items():
            *_, before, now = (0.0, 0.0, *(value for _, value in sorted(values.items())))
            if values and max(values) == history.step:
                earlier = found.get(layer, (0.0, 0.0))
                found[layer] = (max(earlier[0], before), max(earlier[1], now))
    return found

"""The updates of queries and keys shrink into few directions: S₂ against its own recent past.

A biased error in the attention gradient adds the same direction at every step; noise does not. So the
effective rank of ΔW_q, and of the first-order increment Δ2 of a head's score operator, falls, and
consecutive updates point the same way. Early in training both also happen in a healthy run, which is why
a series must first have a past to be compared with.

Source: arXiv:2606.28116 §3.2 for S₂ as the signal; the thresholds were set on the demo's runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from foreshock.daemon.detectors.base import Detector, History, Point
from foreshock.storage.records import Finding, SeriesKey

LAG = 1
FALL = 0.5
"""S₂ below so large a share of its running median is a collapse …"""
PERSISTENCE = 0.5
"""… if consecutive updates also have at least this cosine."""
PAST = 8
"""Points that the median is taken over."""
MIN_PAST = 6
"""Points without which there is no past to compare with."""
SETTLING = 10
"""Checkpoints at the start of an attempt that are not judged: S₂ falls in every young run."""


@dataclass(frozen=True, slots=True)
class _Fall:
    key: SeriesKey
    now: float
    past: float

    @property
    def share(self) -> float:
        return self.now / self.past


class RankCollapse(Detector):
    """Speaks of a layer whose S₂ fell to half its recent median while its updates persist."""

    name = "rank_collapse"

    def judge(self, history: History) -> Iterable[Finding]:
        """At most one finding a layer: the deepest fall that persistence confirms."""
        persistence = dict(_newest(history, "update.persistence"))
        falls: dict[int, _Fall] = {}
        for metric, role in (
            ("update.effective_rank", "q"),
            ("update.effective_rank", "k"),
        ):
            for key, points in history.points(metric, role=role, lag=LAG):
                fall = _fall(key, points, history.step) if not key.unit else None
                confirmed = persistence.get((key.layer, role), 0.0) >= PERSISTENCE
                if fall and confirmed and key.layer is not None:
                    deeper = falls.get(key.layer)
                    falls[key.layer] = fall if deeper is None or fall.share < deeper.share else deeper
        for layer, fall in sorted(falls.items()):
            yield self._finding(layer, fall, persistence[layer, fall.key.role], history.step)

    def _finding(self, layer: int, fall: _Fall, persistence: float, step: int) -> Finding:
        role = fall.key.role
        return Finding(
            rule=self.name,
            subject=f"layer {layer}, {role}",
            step=step,
            severity="critical",
            layer=layer,
            message=(
                f"The updates of {role} in layer {layer} shrank into few directions at step {step}:"
                f" effective rank {fall.now:.1f}, {1 - fall.share:.0%} below its recent median"
                f" {fall.past:.1f}, and consecutive updates point the same way (cosine {persistence:.2f})."
                " This is how biased low-precision attention looks before the loss moves."
            ),
            evidence={
                "metric": fall.key.metric,
                "parameter": fall.key.parameter,
                "value": fall.now,
                "median": fall.past,
                "persistence": persistence,
            },
        )


def _fall(key: SeriesKey, points: Sequence[Point], step: int) -> _Fall | None:
    """The fall of the newest point below the median of those before, if it is one."""
    if not points or points[-1].step != step or len(points) <= SETTLING:
        return None
    past = [point.value for point in points[-1 - PAST : -1]]
    if len(past) < MIN_PAST:
        return None
    usual = median(past)
    return _Fall(key, points[-1].value, usual) if points[-1].value < FALL * usual else None


def _newest(history: History, metric: str) -> Iterator[tuple[tuple[int | None, str], float]]:
    """The value at the step under judgement, by layer and role."""
    for role in ("q", "k"):
        for key, points in history.points(metric, role=role, lag=LAG):
            if not key.unit and points and points[-1].step == history.step:
                yield (key.layer, role), points[-1].value

"""How large an update is, whether it stands out from rounding, and whether it keeps its direction."""

from __future__ import annotations

from collections.abc import Iterator

from foreshock.daemon.linalg import cosine
from foreshock.daemon.monitors.base import LayerChange, Monitor, Reading
from foreshock.daemon.monitors.family import MATRICES, ZERO_UPDATE, by_head, undefined
from foreshock.daemon.monitors.trust import MIN_RESOLUTION, Update, updates
from foreshock.daemon.roles.base import Role
from foreshock.storage.records import Metric

NO_EARLIER_BASE = "no_earlier_base"
ZERO_WEIGHT = "zero_weight"


class UpdateSize(Monitor):
    """`update.relative_norm` and `update.resolution` of whole matrices."""

    metrics = (
        Metric(
            "update.relative_norm",
            "‖ΔW‖_F / ‖W‖_F with W at the base: shows a wrong learning rate or a frozen layer."
            " Undefined for a W that was zero and changed.",
            low=0.0,
        ),
        Metric(
            "update.resolution",
            "‖ΔW‖_F over the rounding noise that the stored dtype alone gives a difference (bf16:"
            f" 2.3e-3 ‖W‖_F). Below {MIN_RESOLUTION:g} the spectrum of ΔW is that of the noise."
            " Undefined for a zero update.",
            low=0.0,
        ),
    )

    def of_change(self, change: LayerChange) -> Iterator[Reading]:
        """Both metrics of each role."""
        for update in updates(change, MATRICES):
            if update.obstacle:
                yield from undefined(self.metrics, update.role, update.name, update.obstacle)
                continue
            relative, reason = _relative_norm(update)
            yield Reading("update.relative_norm", update.role, update.name, relative, reason=reason)
            reason = update.doubt if update.norm else ZERO_UPDATE
            yield Reading("update.resolution", update.role, update.name, update.resolution, reason=reason)


def _relative_norm(update: Update) -> tuple[float | None, str]:
    """The value and its reason."""
    if not update.norm:
        return 0.0, ""
    if not update.base_norm:
        return None, ZERO_WEIGHT
    return update.norm / update.base_norm, update.doubt


class Persistence(Monitor):
    """`update.persistence` of whole matrices; of q and k also per head."""

    metrics = (
        Metric(
            "update.persistence",
            "Cosine of consecutive updates, ⟨ΔW_t, ΔW_{t−δ}⟩ / (‖ΔW_t‖ ‖ΔW_{t−δ}‖). A biased error keeps"
            " its direction, noise does not. Undefined without a third checkpoint, or if an update is zero.",
            low=-1.0,
            high=1.0,
        ),
    )

    def of_change(self, change: LayerChange) -> Iterator[Reading]:
        """The whole matrix of a role first, then its heads."""
        for now in updates(change, MATRICES):
            then = Update(change.earlier, change.before, now.role) if change.earlier else None
            obstacle = now.obstacle or (then.obstacle if then else NO_EARLIER_BASE)
            if obstacle or then is None:
                yield from undefined(self.metrics, now.role, now.name, obstacle)
            else:
                yield from self._readings(change, now, then)

    def _readings(self, change: LayerChange, now: Update, then: Update) -> Iterator[Reading]:
        doubt = now.doubt or then.doubt
        yield _persistence(now, "", cosine(now.change, then.change), doubt)
        heads = change.after.heads
        if heads is None or now.role not in {Role.Q, Role.K}:
            return
        ours, theirs = by_head(now.change, now.role, heads), by_head(then.change, then.role, heads)
        for head in range(heads.of(now.role)):
            yield _persistence(now, f"head.{head}", cosine(ours[head], theirs[head]), doubt)


def _persistence(update: Update, unit: str, value: float | None, doubt: str) -> Reading:
    reason = ZERO_UPDATE if value is None else doubt
    return Reading("update.persistence", update.role, update.name, value, unit, reason)

"""Why an update is exactly zero: the same checkpoint twice, a frozen parameter, or too coarse a dtype.

One layer cannot tell; it takes all of them. So samples of zero updates wait here until the checkpoint is
measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from statistics import median

from foreshock.daemon.linalg import rounding_noise
from foreshock.daemon.monitors.family import ZERO_UPDATE
from foreshock.daemon.monitors.trust import MIN_RESOLUTION
from foreshock.storage.records import Sample

IDENTICAL = "identical_checkpoint"
FROZEN = "frozen_parameter"
TOO_COARSE = "below_dtype_resolution"

_COARSE = 1e-5
"""Rounding noise above which a dtype can swallow a whole update: fp16, bf16, fp8."""


@dataclass(slots=True)
class ZeroUpdates:
    """Holds samples of zero updates back, and watches how far the others moved."""

    _waiting: list[tuple[Sample, str]] = field(default_factory=list)
    _moved: dict[int, list[float]] = field(default_factory=dict)  # relative norms by lag

    def pass_on(self, sample: Sample, dtype: str) -> bool:
        """Whether the sample is fine as it is; otherwise it is kept until `explained`.

        Args:
            dtype: stored dtype of the sample's parameter.
        """
        if sample.reason == ZERO_UPDATE:
            self._waiting.append((sample, dtype))
            return False
        if sample.key.metric == "update.relative_norm" and sample.value:
            self._moved.setdefault(sample.key.lag, []).append(sample.value)
        return True

    def explained(self) -> Iterator[Sample]:
        """The samples that waited, each with its reason."""
        for sample, dtype in self._waiting:
            yield replace(sample, reason=self._reason(sample.key.lag, dtype))

    def _reason(self, lag: int, dtype: str) -> str:
        moved = self._moved.get(lag)
        if not moved:
            return IDENTICAL
        noise = rounding_noise(dtype)
        if noise > _COARSE and median(moved) < MIN_RESOLUTION * noise:
            return TOO_COARSE
        return FROZEN

"""Numbers that are none."""

from __future__ import annotations

from collections.abc import Iterator

from foreshock.daemon.monitors.base import LayerState, Monitor, Reading
from foreshock.storage.records import Metric


class Integrity(Monitor):
    """`weight.nonfinite` of every tensor that has a role, whatever its shape."""

    metrics = (
        Metric(
            "weight.nonfinite",
            "How many elements of the tensor are NaN or Inf. Above 0, nothing else is computed from it.",
            unit="elements",
            low=0.0,
        ),
    )

    def of_state(self, state: LayerState) -> Iterator[Reading]:
        """One count per role."""
        for role, name in state.names.items():
            yield Reading("weight.nonfinite", role, name, float(state.nonfinite.get(role, 0)))

"""What a monitor sees and says.

A monitor looks at one layer: at one checkpoint (`of_state`), or between two (`of_change`). It yields
readings; the pipeline turns them into samples. A monitor never reads files and keeps no state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from foreshock.daemon.roles.base import Heads, Layer, Role
from foreshock.storage.records import Metric

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class LayerState:
    """One layer at one checkpoint.

    Attributes:
        tensors: per role, the weight as stored (its own dtype), rows = output features; on the
            device that computes. Roles that could not be read are absent.
        dtypes: per role, the dtype on disk.
        nonfinite: per role, how many NaN and Inf it holds; monitors skip such tensors.
    """

    layer: Layer
    step: int
    tensors: Mapping[Role, Tensor]
    dtypes: Mapping[Role, str]
    nonfinite: Mapping[Role, int] = field(default_factory=dict)

    @property
    def heads(self) -> Heads | None:
        """Head layout of the layer, None when unknown."""
        return self.layer.heads

    @property
    def names(self) -> Mapping[Role, str]:
        """What series of the roles that were read are called by."""
        return {role: self.layer.names[role] for role in self.tensors}

    def finite(self, role: Role) -> bool:
        """Whether the role is there and holds only finite numbers."""
        return role in self.tensors and not self.nonfinite.get(role, 0)


@dataclass(frozen=True, slots=True)
class LayerChange:
    """One layer at two checkpoints of one attempt.

    Attributes:
        before: at step t − δ, the base.
        after: at step t.
        earlier: at step t − 2δ where it is still known: the base's own base, `lag` checkpoints before.
        lag: how many checkpoints lie between before and after.
    """

    before: LayerState
    after: LayerState
    lag: int
    earlier: LayerState | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """One number about one layer.

    Attributes:
        metric: a name that the monitor lists in `metrics`.
        role: as in `SeriesKey.role`.
        parameter: as in `SeriesKey.parameter`.
        unit: `head.3`, `expert.5`, or empty for the whole matrix.
        value: None when undefined; then `reason` says why.
    """

    metric: str
    role: str
    parameter: str
    value: float | None
    unit: str = ""
    reason: str = ""


class Monitor:
    """Base of all monitors: overrides one of the two methods, or both."""

    metrics: ClassVar[tuple[Metric, ...]] = ()

    def of_state(self, state: LayerState) -> Iterable[Reading]:
        """Readings of one checkpoint."""
        del state
        return ()

    def of_change(self, change: LayerChange) -> Iterable[Reading]:
        """Readings of the difference of two checkpoints."""
        del change
        return ()

"""One role at two checkpoints: whether it can be compared, and whether the difference means anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from foreshock.daemon.linalg import Stored, difference_noise, frobenius_norm
from foreshock.daemon.monitors.base import LayerChange, LayerState
from foreshock.daemon.monitors.family import BELOW_RESOLUTION, NONFINITE, NOT_IN_BASE, SHAPE_CHANGED
from foreshock.daemon.roles.base import Role

MIN_RESOLUTION = 4.0
"""An update less than this many times the rounding noise has the noise's spectrum, not its own."""


@dataclass(frozen=True)
class Update:
    """ΔW = after − before of one role; norms are computed once.

    Attributes:
        role: that `after` holds.
    """

    before: LayerState
    after: LayerState
    role: Role

    @property
    def name(self) -> str:
        """What its series are called by."""
        return self.after.names[self.role]

    @property
    def obstacle(self) -> str:
        """The reason why there is no difference; empty when there is one."""
        if self.role not in self.before.tensors:
            return NOT_IN_BASE
        if self.before.tensors[self.role].shape != self.after.tensors[self.role].shape:
            return SHAPE_CHANGED
        finite = self.before.finite(self.role) and self.after.finite(self.role)
        return "" if finite else NONFINITE

    @property
    def base(self) -> Stored:
        """W at the base."""
        return Stored(self.before.tensors[self.role])

    @property
    def change(self) -> Stored:
        """ΔW; only where there is no obstacle."""
        return Stored(self.after.tensors[self.role], self.before.tensors[self.role])

    @cached_property
    def norm(self) -> float:
        """‖ΔW‖_F; 0 exactly when nothing changed."""
        return frobenius_norm(self.change)

    @cached_property
    def base_norm(self) -> float:
        """‖W‖_F at the base."""
        return frobenius_norm(self.base)

    @cached_property
    def resolution(self) -> float | None:
        """‖ΔW‖_F over the norm of the rounding noise that the stored dtypes alone would give.

        Returns:
            Above 0; None for a zero update, which is no noise.
        """
        if not self.norm:
            return None
        after_norm = frobenius_norm(Stored(self.after.tensors[self.role]))
        noise = difference_noise(
            (self.base_norm, self.before.dtypes[self.role]), (after_norm, self.after.dtypes[self.role])
        )
        return self.norm / noise

    @property
    def doubt(self) -> str:
        """`below_resolution` for an update that drowns in rounding noise; else empty."""
        noisy = self.resolution is not None and self.resolution < MIN_RESOLUTION
        return BELOW_RESOLUTION if noisy else ""


def is_matrix(state: LayerState, role: Role) -> bool:
    """Whether the role was read and is a matrix with elements: nothing else has a spectrum."""
    tensor = state.tensors.get(role)
    return tensor is not None and tensor.ndim == 2 and tensor.numel() > 0


def updates(change: LayerChange, roles: Iterable[Role]) -> Iterator[Update]:
    """The updates of those roles that are matrices now, comparable or not."""
    for role in roles:
        if is_matrix(change.after, role):
            yield Update(change.before, change.after, role)

"""Layers made of nothing but tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import pytest
import torch
from torch import Tensor

from foreshock.daemon.linalg import count_nonfinite
from foreshock.daemon.monitors.base import LayerState, Reading
from foreshock.daemon.roles.base import Heads, Layer, Role, RouterTraits

MakeState = Callable[..., LayerState]
ByKey = Callable[[Iterable[Reading]], dict[tuple[str, str, str], Reading]]


@pytest.fixture
def state() -> MakeState:
    """A layer whose parameters are called after their roles, `q.weight`."""

    def make(
        tensors: Mapping[Role, Tensor],
        heads: Heads | None = None,
        router: RouterTraits | None = None,
        step: int = 100,
    ) -> LayerState:
        names = {role: f"{role}.weight" for role in Role}
        return LayerState(
            Layer(3, {}, names, heads, router or RouterTraits()),
            step,
            tensors,
            {role: str(tensor.dtype).removeprefix("torch.") for role, tensor in tensors.items()},
            {role: count_nonfinite(tensor) for role, tensor in tensors.items()},
        )

    return make


@pytest.fixture
def by_key() -> ByKey:
    """Readings by metric, role and unit, each of them once."""

    def index(readings: Iterable[Reading]) -> dict[tuple[str, str, str], Reading]:
        found: dict[tuple[str, str, str], Reading] = {}
        for reading in readings:
            key = (reading.metric, reading.role, reading.unit)
            assert key not in found
            found[key] = reading
        return found

    return index


@pytest.fixture
def gaussian() -> Callable[..., Tensor]:
    """Independent standard normal tensors, the same in every run of a test."""
    generator = torch.Generator().manual_seed(2)
    return lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float32)


@pytest.fixture
def attention(gaussian: Callable[..., Tensor]) -> Callable[[], dict[Role, Tensor]]:
    """q, k, v, o of 4 heads of 3 over 2 key heads, and a router of 5 experts; the model is 16 wide."""
    shapes = {Role.Q: (12, 16), Role.K: (6, 16), Role.V: (6, 16), Role.O: (16, 12), Role.ROUTER: (5, 16)}
    return lambda: {role: gaussian(*shape) for role, shape in shapes.items()}


@pytest.fixture
def heads() -> Heads:
    return Heads(num_heads=4, num_kv_heads=2, head_dim=3)

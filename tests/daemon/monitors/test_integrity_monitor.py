from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from foreshock.daemon.monitors.base import LayerState
from foreshock.daemon.monitors.integrity import Integrity
from foreshock.daemon.roles.base import Role


def test_every_tensor_with_a_role_is_counted(state: Callable[..., LayerState]) -> None:
    bad = torch.tensor([[math.nan, 1.0], [math.inf, -math.inf]])
    tensors = {role: torch.ones(2, 2) for role in Role} | {Role.V: bad, Role.ROUTER_BIAS: bad.flatten()}
    found = {reading.role: reading.value for reading in Integrity().of_state(state(tensors))}
    assert found == dict.fromkeys(Role, 0.0) | {Role.V: 3.0, Role.ROUTER_BIAS: 3.0}


@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3, 4)])
def test_the_shape_does_not_matter(state: Callable[..., LayerState], shape: tuple[int, ...]) -> None:
    tensor = torch.full(shape, math.nan)
    (reading,) = Integrity().of_state(state({Role.Q: tensor}))
    assert (reading.value, reading.parameter) == (float(tensor.numel()), "q.weight")

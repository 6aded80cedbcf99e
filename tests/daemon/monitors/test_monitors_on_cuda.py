from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from foreshock.daemon.monitors import MONITORS
from foreshock.daemon.monitors.base import LayerChange, LayerState, Reading
from foreshock.daemon.roles.base import Heads, Role

TOLERANCE = 1e-9


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_cuda_device_gives_the_numbers_of_the_cpu(
    state: Callable[..., LayerState],
    attention: Callable[[], dict[Role, Tensor]],
    heads: Heads,
    dtype: torch.dtype,
) -> None:
    checkpoints = [{role: w.to(dtype) for role, w in attention().items()} for _ in range(3)]

    def measured(device: str) -> list[Reading]:
        earlier, before, after = (
            state({role: w.to(device) for role, w in weights.items()}, heads) for weights in checkpoints
        )
        change = LayerChange(before, after, 1, earlier)
        return [r for m in MONITORS for r in (*m.of_state(after), *m.of_change(change))]

    for ours, theirs in zip(measured("cuda"), measured("cpu"), strict=True):
        assert (ours.metric, ours.unit, ours.reason) == (theirs.metric, theirs.unit, theirs.reason)
        assert ours.value == pytest.approx(theirs.value, rel=TOLERANCE, abs=TOLERANCE)

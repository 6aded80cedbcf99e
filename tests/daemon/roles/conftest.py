"""Headers of made-up checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from foreshock.daemon.formats.base import TensorInfo

Headers = Callable[[Mapping[str, tuple[int, ...]]], dict[str, TensorInfo]]


@pytest.fixture
def headers() -> Headers:
    """Turns shapes by name into headers by name."""
    return lambda shapes: {name: TensorInfo(name, "float32", shape) for name, shape in shapes.items()}


@pytest.fixture
def llama() -> Callable[..., dict[str, TensorInfo]]:
    """A Llama of 4 heads of 16 over 2 key heads, its names below any path."""

    def model(path: str = "model.", num_layers: int = 2) -> dict[str, TensorInfo]:
        shapes = {"q": (64, 64), "k": (32, 64), "v": (32, 64), "o": (64, 64)}
        names = {
            f"{path}layers.{layer}.self_attn.{role}_proj.weight": shape
            for layer in range(num_layers)
            for role, shape in shapes.items()
        }
        return {name: TensorInfo(name, "bfloat16", shape) for name, shape in names.items()}

    return model

"""The weights that every format is given: all readable dtypes, odd shapes, values that are easily lost."""

from __future__ import annotations

import torch
from torch import Tensor

FLOATS = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp8_e4m3": torch.float8_e4m3fn,
    "fp8_e5m2": torch.float8_e5m2,
}

SPECIAL = (float("nan"), float("inf"), float("-inf"), -0.0, 1e-40, 6e-8)


def random_bits(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> Tensor:
    """A tensor of arbitrary bits: NaN payloads and subnormal numbers included."""
    generator = torch.Generator().manual_seed(seed)
    size = torch.Size(shape).numel() * dtype.itemsize
    content = torch.randint(0, 256, (max(size, 1),), dtype=torch.uint8, generator=generator)
    return content[:size].view(dtype).reshape(shape)


def sample_weights() -> dict[str, Tensor]:
    """Floating-point tensors, by names as a transformer has them."""
    weights = {
        f"layers.0.attention.{name}.weight": random_bits((6, 4), dtype, seed)
        for seed, (name, dtype) in enumerate(FLOATS.items())
    }
    weights["layers.1.five_rows.weight"] = random_bits((5, 3), torch.bfloat16, 10)
    weights["layers.1.one_row.weight"] = random_bits((1, 7), torch.float32, 11)
    weights["layers.1.conv.weight"] = random_bits((3, 2, 2), torch.float32, 12)
    weights["layers.1.special.bias"] = torch.tensor(SPECIAL)
    weights["layers.1.scale"] = torch.tensor(3.5, dtype=torch.bfloat16)
    weights["layers.1.placeholder.weight"] = torch.empty(0, dtype=torch.float32)
    weights["layers.1.no_rows.weight"] = torch.empty(0, 4, dtype=torch.bfloat16)
    weights["layers.1.no_columns.weight"] = torch.empty(3, 0, dtype=torch.float16)
    return weights


def sample_counters() -> dict[str, Tensor]:
    """What is named but cannot be measured."""
    return {
        "tokens_seen": torch.tensor([3, 4]),
        "layers.0.attention.mask": torch.tensor([True, False, True]),
        "layers.0.packed.qweight": torch.zeros(2, 3, dtype=torch.uint8),
    }


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Whether shape, dtype and every bit agree; NaN equals a NaN of the same bits."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return torch.equal(
        one.contiguous().reshape(-1).view(torch.uint8), other.contiguous().reshape(-1).view(torch.uint8)
    )

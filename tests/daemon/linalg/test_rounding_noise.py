from __future__ import annotations

import pytest
import torch

from foreshock.daemon.linalg import difference_noise, rounding_noise

# std that keeps the values in the dtype's normal range
STANDARD_DEVIATIONS = {
    "bfloat16": 0.02,
    "float16": 0.5,
    "float32": 0.02,
    "float8_e4m3fn": 20.0,
    "float8_e5m2": 2.0,
}


@pytest.mark.parametrize(("dtype", "std"), STANDARD_DEVIATIONS.items())
def test_the_constant_is_the_noise_of_two_rounded_snapshots(dtype: str, std: float) -> None:
    generator = torch.Generator().manual_seed(0)
    before = std * torch.randn(512, 512, generator=generator, dtype=torch.float64)
    after = before + std * 0.5 * torch.randn(512, 512, generator=generator, dtype=torch.float64)
    stored = [weight.to(getattr(torch, dtype)).double() for weight in (before, after)]
    noise = ((stored[1] - stored[0]) - (after - before)).norm().item()
    expected = difference_noise((before.norm().item(), dtype), (after.norm().item(), dtype))
    assert noise == pytest.approx(expected, rel=0.06)


def test_the_constants_are_those_of_the_mantissas() -> None:
    assert rounding_noise("bfloat16") == pytest.approx(2.3e-3, rel=0.03)
    assert rounding_noise("float32") == pytest.approx(3.5e-8, rel=0.03)
    assert rounding_noise("float16") == rounding_noise("bfloat16") / 8
    assert rounding_noise("float8_e4m3fn") == rounding_noise("bfloat16") * 16
    assert rounding_noise("float8_e5m2") == rounding_noise("bfloat16") * 32
    assert rounding_noise("float64") == rounding_noise("float32") / 2**29


def test_equal_snapshots_have_the_constant_times_their_norm() -> None:
    assert difference_noise((3.0, "float16"), (3.0, "float16")) == pytest.approx(
        3 * rounding_noise("float16")
    )


def test_a_snapshot_in_a_wide_dtype_adds_no_noise_of_its_own() -> None:
    one_sided = difference_noise((1.0, "float64"), (1.0, "bfloat16"))
    assert one_sided == pytest.approx(rounding_noise("bfloat16") / 2**0.5)


def test_a_zero_snapshot_is_exact() -> None:
    assert difference_noise((0.0, "bfloat16"), (0.0, "bfloat16")) == 0

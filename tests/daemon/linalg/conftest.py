from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

Gaussian = Callable[..., Tensor]


@pytest.fixture
def gaussian() -> Gaussian:
    """Independent standard normal tensors of the given shapes, the same in every run of a test."""
    generator = torch.Generator().manual_seed(1)

    def draw(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

    return draw


@pytest.fixture
def known_spectrum(gaussian: Gaussian) -> Callable[[list[float], int, int], Tensor]:
    """Matrices with random singular vectors and these singular values."""

    def build(sigma: list[float], num_rows: int, num_columns: int) -> Tensor:
        left, _ = torch.linalg.qr(gaussian(num_rows, len(sigma)))
        right, _ = torch.linalg.qr(gaussian(num_columns, len(sigma)))
        return left @ torch.diag(torch.tensor(sigma, dtype=torch.float64)) @ right.mT

    return build


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)

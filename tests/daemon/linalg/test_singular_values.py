from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from foreshock.daemon.errors import NumericalError
from foreshock.daemon.linalg import (
    Stored,
    blockwise_singular_values,
    headwise_singular_values,
    singular_values,
)
from foreshock.daemon.linalg.eigenvalues import eigenvalues, square_root

SHAPES = [(5, 9), (9, 5), (6, 6), (1, 8), (8, 1), (1, 1)]


@pytest.mark.parametrize("shape", SHAPES)
def test_singular_values_agree_with_a_dense_decomposition(
    gaussian: Callable[..., Tensor], shape: tuple[int, int]
) -> None:
    matrix = gaussian(*shape)
    torch.testing.assert_close(singular_values(matrix), torch.linalg.svdvals(matrix), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("limit", [1, 20, 10_000])
def test_singular_values_of_an_update_agree_in_blocks_of_any_size(
    gaussian: Callable[..., Tensor], shape: tuple[int, int], limit: int
) -> None:
    after, before = gaussian(*shape, dtype=torch.float32), gaussian(*shape, dtype=torch.float32)
    expected = torch.linalg.svdvals(after.double() - before.double())
    found = blockwise_singular_values(Stored(after, before), max_elements=limit)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("limit", [1, 100, 10_000])
def test_singular_values_of_heads_agree_in_chunks_of_any_size(
    gaussian: Callable[..., Tensor], limit: int
) -> None:
    after, before = gaussian(12, 7), gaussian(12, 7)
    delta = after - before
    by_rows = headwise_singular_values(Stored(after, before).split_rows(4), max_elements=limit)
    by_columns = headwise_singular_values(Stored(after.T, before.T).split_columns(4), max_elements=limit)
    expected = torch.linalg.svdvals(delta.reshape(4, 3, 7))
    torch.testing.assert_close(by_rows, expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(by_columns, expected, rtol=1e-10, atol=1e-12)


def test_a_batch_is_decomposed_matrix_by_matrix(gaussian: Callable[..., Tensor]) -> None:
    batch = gaussian(2, 3, 4, 5) * torch.logspace(-30, 30, 6).reshape(2, 3, 1, 1)
    torch.testing.assert_close(singular_values(batch), torch.linalg.svdvals(batch), rtol=1e-10, atol=0)


def test_singular_values_that_are_given_come_out(
    known_spectrum: Callable[[list[float], int, int], Tensor],
) -> None:
    sigma = [5.0, 2.0, 1.0, 1e-3]
    found = singular_values(known_spectrum(sigma, 20, 30))
    torch.testing.assert_close(found[:3], torch.tensor(sigma[:3]).double(), rtol=1e-12, atol=0)
    assert found[3].item() == pytest.approx(1e-3, rel=1e-6)  # of an energy share of 3e-8
    assert found[4:].max() < 1e-7


@pytest.mark.parametrize("size", [1e20, 1e-30])
def test_float32_squares_neither_overflow_nor_underflow(size: float) -> None:
    matrix = torch.full((4, 9), size)
    found = singular_values(matrix)
    assert found.dtype == torch.float32
    assert found[0].item() == pytest.approx(6 * size, rel=1e-5)
    assert blockwise_singular_values(Stored(matrix), torch.float32)[0].item() == pytest.approx(
        6 * size, rel=1e-5
    )


@pytest.mark.parametrize("size", [1e150, 1e-150])
def test_float64_squares_neither_overflow_nor_underflow(size: float) -> None:
    matrix = torch.full((4, 9), size, dtype=torch.float64)
    assert singular_values(matrix)[0].item() == pytest.approx(6 * size, rel=1e-12)


def test_a_zero_matrix_in_a_batch_has_zero_singular_values(gaussian: Callable[..., Tensor]) -> None:
    found = singular_values(torch.stack([torch.zeros(3, 4).double(), gaussian(3, 4)]))
    assert torch.equal(found[0], torch.zeros(3).double())
    assert found[1].min() > 0


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
def test_one_nonfinite_element_is_refused_before_any_decomposition(
    gaussian: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch, poison: float
) -> None:
    def never(gram: Tensor) -> Tensor:
        raise AssertionError("decomposed")

    monkeypatch.setattr(torch.linalg, "eigvalsh", never)
    matrix = gaussian(8, 8)
    matrix[0, 0] = poison
    for decompose in (singular_values, lambda m: blockwise_singular_values(Stored(m))):
        with pytest.raises(NumericalError, match="NaN or Inf"):
            decompose(matrix)


def test_a_library_that_silently_returns_zeros_is_caught(
    gaussian: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.linalg, "eigvalsh", lambda gram: torch.zeros(gram.shape[:-1]).double())
    for decompose in (singular_values, lambda m: blockwise_singular_values(Stored(m))):
        with pytest.raises(NumericalError, match="Frobenius"):
            decompose(gaussian(5, 6))


def test_a_library_that_gives_up_is_reported_as_a_numerical_error(
    gaussian: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(gram: Tensor) -> Tensor:
        raise torch.linalg.LinAlgError("failed to converge")

    monkeypatch.setattr(torch.linalg, "eigvalsh", fail)
    monkeypatch.setattr(torch.linalg, "eigh", fail)
    with pytest.raises(NumericalError, match="failed to converge"):
        singular_values(gaussian(5, 6))
    with pytest.raises(NumericalError, match="failed to converge"):
        square_root(torch.eye(3))


def test_eigenvalues_that_miss_the_energy_of_one_matrix_in_a_batch_are_refused() -> None:
    with pytest.raises(NumericalError, match="by 1,"):
        eigenvalues(torch.eye(2).double().expand(3, 2, 2), torch.tensor([2.0, 2.0, 3.0]).double())


def test_the_root_of_a_matrix_without_full_rank_squares_to_it(gaussian: Callable[..., Tensor]) -> None:
    tall = gaussian(3, 8, 2)
    gram = tall @ tall.mT
    root = square_root(gram)
    torch.testing.assert_close(root @ root.mT, gram, rtol=0, atol=1e-12)

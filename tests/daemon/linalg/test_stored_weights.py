from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from foreshock.daemon.linalg import Stored, cosine, count_nonfinite, frobenius_norm, gram

NARROW = [torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2]


@pytest.mark.parametrize("dtype", [*NARROW, torch.float32, torch.float64])
def test_a_difference_is_taken_after_conversion(gaussian: Callable[..., Tensor], dtype: torch.dtype) -> None:
    after, before = gaussian(5, 7, dtype=dtype), gaussian(5, 7, dtype=dtype)
    assert torch.equal(Stored(after, before).dense(), after.double() - before.double())


def test_a_difference_that_overflows_its_own_dtype_is_finite() -> None:
    after, before = torch.tensor([65504.0]).half(), torch.tensor([-65504.0]).half()
    assert Stored(after, before).dense().item() == 2 * 65504.0


def test_snapshots_of_two_dtypes_can_be_subtracted() -> None:
    after, before = torch.tensor([1.0]).bfloat16(), torch.tensor([1 + 2**-20])
    assert Stored(after, before).dense().item() == -(2**-20)


def test_dense_values_are_a_copy_even_without_conversion() -> None:
    weight = torch.ones(3, dtype=torch.float64)
    Stored(weight).dense().zero_()
    assert torch.equal(weight, torch.ones(3, dtype=torch.float64))


@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (1, 100), (100, 1), (4, 5, 6), (60,), ()])
@pytest.mark.parametrize("limit", [1, 7, 10_000])
def test_blocks_cover_every_element_once(shape: tuple[int, ...], limit: int) -> None:
    numbers = torch.arange(math.prod(shape), dtype=torch.float64).reshape(shape)
    blocks = [block.dense() for block in Stored(numbers).blocks(limit)]
    assert all(0 < block.numel() <= limit for block in blocks)
    assert sorted(torch.cat([block.flatten() for block in blocks]).tolist()) == numbers.flatten().tolist()


def test_an_empty_tensor_has_no_blocks() -> None:
    assert list(Stored(torch.empty(0, 5)).blocks()) == []


def test_heads_of_rows_are_consecutive_rows(gaussian: Callable[..., Tensor]) -> None:
    after, before = gaussian(6, 5), gaussian(6, 5)
    heads = Stored(after, before).split_rows(3)
    assert heads.shape == (3, 2, 5)
    assert torch.equal(heads[1].dense(), (after - before)[2:4])


def test_heads_of_columns_are_consecutive_columns(gaussian: Callable[..., Tensor]) -> None:
    after, before = gaussian(5, 6), gaussian(5, 6)
    heads = Stored(after, before).split_columns(3)
    assert heads.shape == (3, 5, 2)
    assert torch.equal(heads[1].dense(), (after - before)[:, 2:4])


def test_heads_of_a_transposed_weight_are_views(gaussian: Callable[..., Tensor]) -> None:
    weight = gaussian(5, 6).T
    for heads in (Stored(weight).split_rows(3), Stored(weight.T).split_columns(3)):
        assert heads.tensor.data_ptr() == weight.data_ptr()
        assert heads.tensor.untyped_storage().nbytes() == weight.untyped_storage().nbytes()


@pytest.mark.parametrize("limit", [1, 10, 10_000])
def test_the_frobenius_norm_does_not_depend_on_blocks(gaussian: Callable[..., Tensor], limit: int) -> None:
    after, before = gaussian(9, 11), gaussian(9, 11)
    norm = frobenius_norm(Stored(after, before), max_elements=limit)
    assert norm == pytest.approx(torch.linalg.matrix_norm(after - before).item(), rel=1e-14)


@pytest.mark.parametrize("size", [1e200, 1e-200])
def test_norms_of_huge_and_tiny_numbers_stay_in_range(size: float) -> None:
    weight = torch.full((3, 3), size, dtype=torch.float64)
    assert frobenius_norm(Stored(weight)) == pytest.approx(3 * size, rel=1e-14)


def test_norms_in_float32_stay_in_range() -> None:
    assert frobenius_norm(Stored(torch.full((4, 4), 1e20)), torch.float32) == pytest.approx(4e20, rel=1e-6)
    assert frobenius_norm(Stored(torch.full((4, 4), 1e-30)), torch.float32) == pytest.approx(4e-30, rel=1e-6)


@pytest.mark.parametrize("limit", [1, 10, 10_000])
def test_the_cosine_does_not_depend_on_blocks(gaussian: Callable[..., Tensor], limit: int) -> None:
    first, second, third = gaussian(9, 11), gaussian(9, 11), gaussian(9, 11)
    ours, theirs = (third - second).flatten(), (second - first).flatten()
    expected = (ours @ theirs / (ours.norm() * theirs.norm())).item()
    assert cosine(Stored(third, second), Stored(second, first), max_elements=limit) == pytest.approx(
        expected, rel=1e-13
    )


def test_the_cosine_of_a_direction_with_itself_is_exactly_in_range(gaussian: Callable[..., Tensor]) -> None:
    for _ in range(20):
        weight = Stored(gaussian(7, 13))
        value, opposite = cosine(weight, weight), cosine(weight, Stored(-weight.tensor))
        assert value == pytest.approx(1)
        assert value <= 1
        assert opposite == pytest.approx(-1)
        assert opposite >= -1


def test_the_cosine_of_tiny_updates_is_not_lost() -> None:
    tiny, huge = (torch.full((2, 2), size, dtype=torch.float64) for size in (1e-200, 1e200))
    assert cosine(Stored(tiny), Stored(huge)) == pytest.approx(1)


def test_a_zero_update_has_no_direction(gaussian: Callable[..., Tensor]) -> None:
    weight = gaussian(3, 3)
    assert cosine(Stored(weight, weight), Stored(weight)) is None
    assert cosine(Stored(torch.empty(0, 3)), Stored(torch.empty(0, 3))) is None


@pytest.mark.parametrize("shape", [(5, 9), (9, 5), (4, 4), (1, 6), (6, 1)])
@pytest.mark.parametrize("limit", [1, 12, 10_000])
def test_the_gram_matrix_is_that_of_the_smaller_side(
    gaussian: Callable[..., Tensor], shape: tuple[int, int], limit: int
) -> None:
    after, before = gaussian(*shape), gaussian(*shape)
    delta = (after - before) / 2.5
    expected = delta @ delta.T if shape[0] <= shape[1] else delta.T @ delta
    found = gram(Stored(after, before), scale=2.5, max_elements=limit)
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13)


def test_nothing_larger_than_a_block_is_ever_converted(
    gaussian: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    convert = Stored.dense

    def spy(self: Stored, dtype: torch.dtype = torch.float64) -> Tensor:
        sizes.append(self.tensor.numel())
        return convert(self, dtype)

    monkeypatch.setattr(Stored, "dense", spy)
    for update in (Stored(gaussian(30, 40), gaussian(30, 40)), Stored(gaussian(40, 30))):
        gram(update, max_elements=100)
        frobenius_norm(update, max_elements=100)
        cosine(update, update, max_elements=100)
    assert 0 < max(sizes) <= 100


@pytest.mark.parametrize("dtype", [*NARROW, torch.float32, torch.float64])
def test_nonfinite_elements_are_counted_in_every_dtype(dtype: torch.dtype) -> None:
    values = torch.zeros(6, 5)
    values[0, 0] = values[3, 4] = math.nan
    count = 2
    if dtype is not torch.float8_e4m3fn:  # has no infinity
        values[1, 1], values[2, 2] = math.inf, -math.inf
        count = 4
    assert count_nonfinite(values.to(dtype)) == count
    assert count_nonfinite(values.to(dtype), max_elements=4) == count


def test_the_largest_float64_is_finite() -> None:
    assert count_nonfinite(torch.tensor([torch.finfo(torch.float64).max], dtype=torch.float64)) == 0


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (2, 3, 4)])
def test_tensors_of_any_shape_can_be_counted(shape: tuple[int, ...]) -> None:
    assert count_nonfinite(torch.full(shape, math.nan)) == math.prod(shape)

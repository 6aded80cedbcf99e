"""Strided pieces are read in bounded blocks, and only the rows that are asked for."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshock.daemon.errors import CorruptCheckpoint, UnsupportedCheckpoint
from foreshock.daemon.formats import reading
from foreshock.daemon.formats.base import (
    MappedCheckpoint,
    Piece,
    TensorInfo,
    contiguous_strides,
    repeats_memory,
    span_of,
)
from foreshock.daemon.formats.reading import blocks_of, bytes_of, is_dense, read_tensor, rows_of
from tests.writers.memory_files import MemoryFiles

strided = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 7)), max_size=3)


def addresses(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    return [
        sum(i * s for i, s in zip(index, strides, strict=True))
        for index in itertools.product(*map(range, shape))
    ]


@given(dimensions=strided)
def test_the_span_reaches_from_the_first_to_the_last_element(dimensions: list[tuple[int, int]]) -> None:
    shape, strides = tuple(n for n, _ in dimensions), tuple(s for _, s in dimensions)
    assert span_of(shape, strides) == max(addresses(shape, strides)) + 1


@given(dimensions=strided)
def test_memory_that_is_shown_twice_is_never_missed(dimensions: list[tuple[int, int]]) -> None:
    shape, strides = tuple(n for n, _ in dimensions), tuple(s for _, s in dimensions)
    places = addresses(shape, strides)
    if len(set(places)) < len(places):
        assert repeats_memory(shape, strides)


@given(shape=st.lists(st.integers(0, 4), max_size=4).map(tuple), data=st.data())
def test_slices_and_permutations_repeat_no_memory(shape: tuple[int, ...], data: st.DataObject) -> None:
    tensor = torch.zeros(shape)
    for dimension in range(tensor.dim()):
        step = data.draw(st.integers(1, 3))
        tensor = tensor[(slice(None),) * dimension + (slice(None, None, step),)]
    tensor = tensor.permute(data.draw(st.permutations(range(tensor.dim()))))
    assert not repeats_memory(tuple(tensor.shape), tensor.stride())


@given(dimensions=strided, limit=st.integers(1, 60))
def test_blocks_stay_below_the_limit_and_cover_the_piece(
    dimensions: list[tuple[int, int]], limit: int
) -> None:
    shape, strides = tuple(n for n, _ in dimensions), tuple(s for _, s in dimensions)
    piece = Piece("f", 100, shape, strides, tuple(range(len(shape))))
    seen: dict[tuple[int, ...], int] = {}
    for block in blocks_of(piece, 2, limit):
        assert block.span * 2 <= limit or block.span == 1
        for index in itertools.product(*map(range, block.shape)):
            place = tuple(d + i for d, i in zip(block.destination, index, strict=True))
            assert place not in seen
            seen[place] = block.offset + 2 * sum(i * s for i, s in zip(index, strides, strict=True))
    expected = {
        tuple(d + i for d, i in zip(piece.destination, index, strict=True)): 100
        + 2 * sum(i * s for i, s in zip(index, strides, strict=True))
        for index in itertools.product(*map(range, shape))
    }
    assert seen == expected


@settings(deadline=None)
@given(
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple),
    order=st.randoms(use_true_random=False),
    limit=st.integers(1, 100),
    rows=st.tuples(st.integers(0, 4), st.integers(0, 4)),
)
def test_any_layout_any_block_size_and_any_rows_give_the_same_numbers(
    shape: tuple[int, ...], order: object, limit: int, rows: tuple[int, int]
) -> None:
    stored = torch.arange(torch.Size(shape).numel(), dtype=torch.float64).reshape(shape)
    axes = list(range(len(shape)))
    order.shuffle(axes)  # type: ignore[attr-defined]
    view = stored.permute(axes)
    checkpoint = one_piece(Piece("f", 0, tuple(view.shape), view.stride(), (0,) * view.dim()), view)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "MAX_BUFFER_BYTES", limit)
        assert torch.equal(read_tensor(checkpoint, "w", memory_of(stored), slice(*rows)), view[slice(*rows)])


def memory_of(tensor: torch.Tensor) -> MemoryFiles:
    return MemoryFiles(bytes(bytes_of(tensor)))


def one_piece(piece: Piece, like: torch.Tensor) -> MappedCheckpoint:
    dtype = str(like.dtype).removeprefix("torch.")
    info = TensorInfo("w", dtype, tuple(like.shape))
    return MappedCheckpoint("test", Path("/nowhere"), {"w": info}, ("f",), {"w": (piece,)})


def test_a_narrow_column_of_a_wide_matrix_skips_what_lies_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_BUFFER_BYTES", 64)
    stored = torch.arange(4000, dtype=torch.float32).reshape(4, 1000)
    files = memory_of(stored)
    piece = Piece("f", 0, (4, 2), (1000, 1), (0, 0))
    read = read_tensor(one_piece(piece, stored[:, :2]), "w", files)
    assert torch.equal(read, stored[:, :2])
    assert files.bytes_read == 4 * 2 * 4


def test_rows_outside_of_a_piece_are_an_empty_part() -> None:
    piece = Piece("f", 0, (3, 2), (2, 1), (4, 0))
    assert rows_of(piece, 0, 4, 4).span == 0
    assert rows_of(piece, 7, 9, 4).span == 0
    assert rows_of(piece, 5, 6, 4) == Piece("f", 8, (1, 2), (2, 1), (0, 0))


def test_strides_of_dimensions_of_size_one_say_nothing() -> None:
    assert is_dense(Piece("f", 0, (1, 3), (77, 1), (0, 0)))
    assert not is_dense(Piece("f", 0, (2, 3), (4, 1), (0, 0)))
    assert is_dense(Piece("f", 0, (), (), ()))
    assert contiguous_strides((2, 1, 3)) == (3, 3, 1)


def test_pieces_that_leave_a_hole_give_no_tensor() -> None:
    stored = torch.zeros(4)
    checkpoint = one_piece(Piece("f", 0, (3,), (1,), (0,)), stored)
    with pytest.raises(CorruptCheckpoint, match="3 of 4 elements of 'w' are there"):
        read_tensor(checkpoint, "w", memory_of(stored))


def test_a_tensor_larger_than_the_memory_is_refused() -> None:
    shape = (1 << 40, 1 << 7)
    info = TensorInfo("w", "float64", shape)
    checkpoint = MappedCheckpoint("test", Path("/nowhere"), {"w": info}, ("f",), {"w": ()})
    with pytest.raises(
        UnsupportedCheckpoint, match="takes 1125899906842624 bytes, more memory than there is"
    ):
        read_tensor(checkpoint, "w", memory_of(torch.zeros(1)))

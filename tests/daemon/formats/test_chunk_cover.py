"""Whether boxes tile a tensor, against counting every element."""

from __future__ import annotations

import itertools
import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foreshock.daemon.formats.chunk_cover import Box, cover_once, cut_dimensions
from tests.writers.dcp_chunks import grid

shapes = st.lists(st.integers(1, 4), max_size=3).map(tuple)


@st.composite
def boxes_in(draw: st.DrawFn) -> tuple[tuple[int, ...], list[Box]]:
    """A small tensor and boxes in it: half of the time a sound grid, perhaps with one box changed."""
    whole = draw(shapes)
    boxes = [box for box in grid(whole, tuple(draw(st.integers(1, 4)) for _ in whole)) if 0 not in box[1]]
    for _ in range(draw(st.integers(0, 2))):
        start = tuple(draw(st.integers(0, size - 1)) for size in whole)
        shape = tuple(draw(st.integers(1, size - first)) for size, first in zip(whole, start, strict=True))
        change = draw(st.sampled_from(["add", "replace", "remove"]))
        if boxes and change != "add":
            boxes.pop(draw(st.integers(0, len(boxes) - 1)))
        if change != "remove":
            boxes.append((start, shape))
    return whole, boxes


def count_elements(whole: tuple[int, ...], boxes: list[Box]) -> set[int]:
    """How many boxes lie over an element: the numbers that occur."""
    hits = dict.fromkeys(itertools.product(*map(range, whole)), 0)
    for start, shape in boxes:
        for index in itertools.product(
            *(range(first, first + size) for first, size in zip(start, shape, strict=True))
        ):
            hits[index] += 1
    return set(hits.values())


@given(case=boxes_in())
def test_boxes_cover_once_exactly_when_every_element_lies_in_one(
    case: tuple[tuple[int, ...], list[Box]],
) -> None:
    whole, boxes = case
    assert cover_once(whole, boxes) == (count_elements(whole, boxes) == {1})


@pytest.mark.parametrize("whole", [(), (5,), (2, 3)])
def test_one_box_covers_its_tensor_and_two_of_them_do_not(whole: tuple[int, ...]) -> None:
    box = ((0,) * len(whole), whole)
    assert cover_once(whole, [box])
    assert not cover_once(whole, [box, box])
    assert not cover_once(whole, [])


def test_an_empty_tensor_has_no_boxes() -> None:
    assert cover_once((0, 4), [])
    assert not cover_once((0, 4), [((0, 0), (1, 4))])


def test_a_hole_and_an_overlap_of_equal_size_do_not_make_up_for_each_other() -> None:
    assert not cover_once((4, 2), [((0, 0), (2, 2)), ((1, 0), (2, 2))])


def test_only_dimensions_that_are_cut_count() -> None:
    boxes = [((0, 0, 0), (2, 3, 4)), ((2, 0, 0), (2, 3, 4))]
    assert cut_dimensions((4, 3, 4), boxes) == (0,)
    assert cut_dimensions((), [((), ())]) == ()


def test_bricks_in_a_row_are_as_quick_as_rows() -> None:
    """All start in row 0: a comparison of pairs would take half of 20,000² steps."""
    start = time.perf_counter()
    boxes = [((0, column), (1, 1)) for column in range(20_000)]
    assert cover_once((1, 20_000), boxes)
    assert time.perf_counter() - start < 2


def test_a_tiling_that_is_no_grid_is_sound() -> None:
    pinwheel = [((0, 0), (1, 2)), ((0, 2), (2, 1)), ((2, 1), (1, 2)), ((1, 0), (2, 1)), ((1, 1), (1, 1))]
    assert sum(math.prod(shape) for _, shape in pinwheel) == 9
    assert cover_once((3, 3), pinwheel)
    assert not cover_once((3, 3), pinwheel[:-1])

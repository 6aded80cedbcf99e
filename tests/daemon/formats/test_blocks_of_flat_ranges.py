"""A range of a flattened tensor is few boxes that cover exactly it."""

from __future__ import annotations

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from foreshock.daemon.formats.blocks import boxes_of_range, flat_view, narrowed
from foreshock.daemon.formats.torch_zip import TensorRef

shapes = st.lists(st.integers(1, 5), min_size=0, max_size=4).map(tuple)


@given(shapes, st.data())
def test_the_boxes_of_a_range_hold_its_elements_in_order(shape: tuple[int, ...], data: st.DataObject) -> None:
    total = math.prod(shape)
    start = data.draw(st.integers(0, total))
    stop = data.draw(st.integers(start, total))
    numbered = torch.arange(total).reshape(shape)

    seen: list[int] = []
    for first, (index, size) in boxes_of_range(shape, start, stop):
        box = numbered[tuple(slice(i, i + n) for i, n in zip(index, size, strict=True))]
        assert box.flatten()[0] == first
        seen += box.flatten().tolist()

    assert seen == list(range(start, stop))


@given(shapes, st.data())
def test_there_are_at_most_two_boxes_for_each_dimension(shape: tuple[int, ...], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, math.prod(shape)))
    stop = data.draw(st.integers(start, math.prod(shape)))

    assert len(list(boxes_of_range(shape, start, stop))) <= max(2 * len(shape) - 1, 1)


def test_a_view_of_a_flat_tensor_starts_at_the_element_asked_for() -> None:
    saved = torch.arange(3, 63)
    ref = TensorRef("0", 64, "float32", 3, (60,), (1,))

    view = flat_view(ref, 12, (2, 5))

    shown = torch.arange(64).as_strided(view.shape, view.strides, view.offset)
    assert torch.equal(shown, saved[12:22].reshape(2, 5))


def test_narrowing_is_that_of_torch() -> None:
    saved = torch.arange(60).reshape(3, 4, 5)
    ref = TensorRef("0", 60, "float32", 0, (3, 4, 5), (20, 5, 1))

    view = narrowed(ref, 1, 1, 2)

    assert torch.equal(
        torch.arange(60).as_strided(view.shape, view.strides, view.offset), saved.narrow(1, 1, 2)
    )

"""Whether boxes tile a tensor: no hole, no overlap, whatever way it was cut."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import product

from foreshock.daemon.errors import CorruptCheckpoint, UnsupportedCheckpoint
from foreshock.daemon.formats.quoting import shown

Index = tuple[int, ...]
Box = tuple[Index, Index]
"""Index of the first element, and shape."""

MAX_CUT_DIMENSIONS = 4
"""Dimensions along which one tensor may be cut; the work doubles with each."""


def check_cover(name: str, whole: Index, boxes: list[Box], *, where: str) -> None:
    """Make sure that the parts of a tensor make it up: each inside of it, no hole, no overlap.

    Args:
        name: of the tensor, for messages.
        whole: its shape.
        boxes: the parts that are not empty.

    Raises:
        CorruptCheckpoint: they do not.
        UnsupportedCheckpoint: it is cut along more than `MAX_CUT_DIMENSIONS` dimensions.
    """
    for start, shape in boxes:
        if not is_inside(start, shape, whole):
            raise CorruptCheckpoint(
                f"{where}: a part {shape} at {start} of tensor {shown(name)} lies outside of {whole}"
            )
    if len(cut_dimensions(whole, boxes)) > MAX_CUT_DIMENSIONS:
        raise UnsupportedCheckpoint(f"{where}: {shown(name)} is cut along too many dimensions")
    if not cover_once(whole, boxes):
        found = sum(math.prod(shape) for _, shape in boxes)
        raise CorruptCheckpoint(
            f"{where}: the {len(boxes)} parts of {shown(name)} hold {found} elements and leave a hole or"
            f" overlap in {whole} ({math.prod(whole)} elements)"
        )


def is_inside(start: Index, shape: Index, whole: Index) -> bool:
    """Whether a box of non-negative numbers lies inside of a tensor, and has as many dimensions."""
    return len(start) == len(shape) == len(whole) and all(
        first + size <= limit for first, size, limit in zip(start, shape, whole, strict=True)
    )


def cut_dimensions(whole: Index, boxes: Iterable[Box]) -> tuple[int, ...]:
    """Dimensions that not all boxes span from end to end."""
    cut = {d for _, shape in boxes for d, size in enumerate(shape) if size != whole[d]}
    return tuple(sorted(cut))


def cover_once(whole: Index, boxes: list[Box]) -> bool:
    """Whether every element of the tensor lies in exactly one of the boxes.

    Give each corner of a box the sign (-1)^(number of upper ends in it). A sum of boxes has the same
    signed corners as the whole exactly when it is the whole, as the signs are the mixed differences of
    the number of boxes over a point. So time is linear in the boxes, where comparing pairs is not.

    Args:
        whole: shape of the tensor.
        boxes: without empty ones, each inside of the tensor, cut along `MAX_CUT_DIMENSIONS` at most.
    """
    if 0 in whole:
        return not boxes
    dimensions = cut_dimensions(whole, boxes)
    signs: Counter[str] = Counter()
    for start, shape in boxes:
        for corner, sign in _corners(start, shape, dimensions):
            signs[corner] += sign
    for corner, sign in _corners((0,) * len(whole), whole, dimensions):
        signs[corner] -= sign
    return not any(signs.values())


def _corners(start: Index, shape: Index, dimensions: tuple[int, ...]) -> Iterator[tuple[str, int]]:
    ends = [((start[d], 1), (start[d] + shape[d], -1)) for d in dimensions]
    for corner in product(*ends):
        sign = 1
        for _, factor in corner:
            sign *= factor
        yield text_of(place for place, _ in corner), sign


def text_of(index: Iterable[int]) -> str:
    """An index as a dictionary key: strings hash with a secret, a file cannot make them collide."""
    return ",".join(map(str, index))

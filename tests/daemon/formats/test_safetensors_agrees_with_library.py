"""Nothing passes our parser of safetensors headers that the library itself rejects."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshock.daemon.errors import CheckpointError
from foreshock.daemon.formats.safetensors import read_safetensors_file
from tests.writers.memory_files import MemoryFiles
from tests.writers.raw_safetensors import accepted_by_the_library, entry, file_bytes


def accepted(content: bytes) -> bool:
    """By us; any error but ours goes through."""
    try:
        read_safetensors_file(MemoryFiles(content), "f")
    except CheckpointError:
        return False
    return True


small = st.integers(0, 9)
entries = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "BF16", "U8", "F4", "f32", "", None]),
        "shape": st.lists(small | st.sampled_from([-1, 1.0, True, 1 << 63, "1", None]), max_size=3),
        "data_offsets": st.lists(small | st.sampled_from([-1, 4.0, 1 << 64]), min_size=1, max_size=3),
    },
    optional={"extra": small},
)
headers = st.dictionaries(
    st.text(max_size=3) | st.just("__metadata__"), entries | st.just({}) | st.none(), max_size=4
)


@given(header=headers, data=st.integers(0, 40))
@settings(max_examples=500, deadline=None)
def test_what_the_library_rejects_is_rejected_for_made_up_headers(header: dict[str, Any], data: int) -> None:
    content = file_bytes(header, bytes(data))
    if accepted(content):
        assert accepted_by_the_library(content)


@st.composite
def tilings(draw: st.DrawFn) -> bytes:
    """Sound files: tensors one after the other, named and ordered at will."""
    header, position = {}, 0
    for name in draw(
        st.lists(
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=3),
            unique=True,
            max_size=5,
        )
    ):
        shape = draw(st.lists(st.integers(0, 3), max_size=3))
        code, size = draw(st.sampled_from([("F32", 4), ("BF16", 2), ("F64", 8), ("F8_E5M2", 1)]))
        num_bytes = size
        for n in shape:
            num_bytes *= n
        header[name] = entry(code, shape, [position, position + num_bytes])
        position += num_bytes
    names = draw(st.permutations(list(header)))
    return file_bytes({name: header[name] for name in names}, bytes(position))


@given(content=tilings())
@settings(deadline=None)
def test_a_sound_file_is_accepted_by_both(content: bytes) -> None:
    assert accepted_by_the_library(content)
    assert accepted(content)


SOUND = file_bytes(
    {
        "__metadata__": {"format": "pt", "é": "\n"},
        "a.weight": entry("BF16", [2, 3], [0, 12]),
        "b.weight": entry("F32", [1], [12, 16]),
        "empty": entry("F32", [0, 2], [16, 16]),
    },
    bytes(range(16)),
)

TOKENS = [
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"0",
    b"1",
    b"-",
    b".",
    b"e",
    b"\\",
    b"\\u0061",
    b"\\ud800",
    b" ",
    b"\n",
    b"\t",
    b"\0",
    b"\xff",
    b"null",
    b"true",
    b"NaN",
    b'"dtype"',
    b'"shape"',
    b"12",
    b"16",
    b"18446744073709551616",
]


def mutated(content: bytes, chance: random.Random) -> bytes:
    """A file that is almost like the given one; the length of its header is right, mostly."""
    header = bytearray(content[8 : len(content) - 16])
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        at = chance.randrange(len(header))
        match chance.randrange(5):
            case 0:
                header[at] = chance.randrange(256)
            case 1:
                del header[at : at + chance.randrange(1, 6)]
            case 2:
                header[at:at] = chance.choice(TOKENS)
            case 3:
                other = chance.randrange(len(header))
                header[at:at] = header[other : other + chance.randrange(1, 40)]
            case _:
                size = chance.choice(TOKENS)
                header[at : at + len(size)] = size
        if not header:
            return b""
    length = len(header) + chance.choice([0] * 8 + [1, -1])
    return struct.pack("<Q", max(length, 0)) + bytes(header) + content[-16:]


@pytest.mark.parametrize("seed", range(5))
def test_what_the_library_rejects_is_rejected_for_mutated_files(seed: int) -> None:
    chance = random.Random(seed)
    counts = {(ours, theirs): 0 for ours in (True, False) for theirs in (True, False)}
    for _ in range(1000):
        content = mutated(SOUND, chance)
        ours, theirs = accepted(content), accepted_by_the_library(content)
        counts[ours, theirs] += 1
        assert theirs or not ours, content
    assert counts[True, True] > 20
    assert counts[False, False] > 500

"""Headers of safetensors: every dtype, what is odd but legal, and every way to be wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from foreshock.daemon.errors import (
    CheckpointError,
    CorruptCheckpoint,
    IncompleteCheckpoint,
    UnsupportedCheckpoint,
)
from foreshock.daemon.formats import open_checkpoint
from foreshock.daemon.formats.safetensors import read_safetensors_file
from tests.writers import raw_safetensors
from tests.writers.memory_files import MemoryFiles
from tests.writers.raw_safetensors import accepted_by_the_library, entry, file_bytes


def accepted(content: bytes) -> bool:
    """By us; any error but ours goes through."""
    try:
        read_safetensors_file(MemoryFiles(content), "f")
    except CheckpointError:
        return False
    return True


LIBRARY_DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F6_E2M3": "float6_e2m3fn",
    "F6_E3M2": "float6_e3m2fn",
    "F4": "float4_e2m1fn",
    "C64": "complex64",
    "I64": "int64",
    "U64": "uint64",
    "I32": "int32",
    "U32": "uint32",
    "I16": "int16",
    "U16": "uint16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}


@pytest.mark.parametrize(("code", "name"), LIBRARY_DTYPES.items())
def test_every_dtype_of_the_library_is_known(code: str, name: str) -> None:
    content = file_bytes({"w": entry(code, [8], [0, 0])})
    sizes = [size for size in range(65) if accepted_by_the_library(sized(code, size))]
    assert len(sizes) == 1
    assert [size for size in range(65) if accepted(sized(code, size))] == sizes
    assert read_safetensors_file(MemoryFiles(sized(code, sizes[0])), "f").tensors["w"].dtype == name
    assert not accepted(content)


def sized(code: str, size: int) -> bytes:
    return file_bytes({"w": entry(code, [8], [0, size])}, bytes(size))


ODD_BUT_LEGAL: list[tuple[str, Any, bytes]] = [
    ("no tensors", {}, b""),
    ("empty metadata", {"__metadata__": {}, "w": entry()}, bytes(4)),
    ("zero size", {"marker": entry(shape=[0], offsets=[0, 0]), "w": entry()}, bytes(4)),
    ("zero size at the end", {"marker": entry(shape=[2, 0], offsets=[4, 4]), "w": entry()}, bytes(4)),
    (
        "zero size in between",
        {"a": entry(), "m": entry(shape=[0], offsets=[4, 4]), "b": entry(offsets=[4, 8])},
        bytes(8),
    ),
    ("scalar", {"scale": entry(shape=[])}, bytes(4)),
    ("order of its own", {"a": entry(offsets=[4, 8]), "b": entry(offsets=[0, 4])}, bytes(8)),
    ("padded", b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}   \n', bytes(4)),
    ("empty name", {"": entry()}, bytes(4)),
    ("unicode name", {"größe.重み": entry()}, bytes(4)),
    ("escaped pair", b'{"\\ud83d\\ude00":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', bytes(4)),
    ("half a byte", {"w": entry("F4", [8], [0, 4])}, bytes(4)),
]


@pytest.mark.parametrize(
    ("header", "data"), [case[1:] for case in ODD_BUT_LEGAL], ids=[case[0] for case in ODD_BUT_LEGAL]
)
def test_what_is_odd_but_legal_is_accepted(header: Any, data: bytes) -> None:
    content = file_bytes(header, data)
    assert accepted_by_the_library(content)
    assert accepted(content)


BROKEN: list[tuple[str, bytes, type[CheckpointError], str]] = [
    ("empty", b"", IncompleteCheckpoint, "0 bytes; the length of the header alone takes 8"),
    ("seven", b"1234567", IncompleteCheckpoint, "7 bytes; the length of the header alone takes 8"),
    ("length 0", file_bytes(b"", length=0), IncompleteCheckpoint, "begins with zeros"),
    ("length 1", file_bytes(b"{", length=1), CorruptCheckpoint, "claims a header of 1 bytes"),
    ("length 2^63", file_bytes(b"{}", length=1 << 63), CorruptCheckpoint, "claims a header"),
    ("length 2^64-1", file_bytes(b"{}", length=(1 << 64) - 1), CorruptCheckpoint, "claims a header"),
    ("over the limit", file_bytes(b"{}", length=100_000_001), CorruptCheckpoint, "claims a header"),
    ("just not there", file_bytes(b"{}", length=100_000_000), IncompleteCheckpoint, "its header alone needs"),
    ("header cut", file_bytes(b'{"w"', length=50), IncompleteCheckpoint, "its header alone needs 58"),
    (
        "data cut",
        file_bytes({"w": entry()}, bytes(3)),
        IncompleteCheckpoint,
        "3 bytes of data, its header needs 4",
    ),
    ("rest", file_bytes({"w": entry()}, bytes(11)), CorruptCheckpoint, "7 bytes follow the last tensor"),
    ("rest of nothing", file_bytes({}, bytes(11)), CorruptCheckpoint, "11 bytes follow"),
    ("array", file_bytes(b"[]"), CorruptCheckpoint, "does not start with '{'"),
    ("space", file_bytes(b" {}"), CorruptCheckpoint, "does not start with '{'"),
    (
        "twice",
        file_bytes(
            b'{"w":' + json.dumps(entry()).encode() + b',"w":' + json.dumps(entry()).encode() + b"}", bytes(4)
        ),
        CorruptCheckpoint,
        "'w' stands there twice",
    ),
    (
        "metadata twice",
        file_bytes(b'{"__metadata__":{},"__metadata__":{}}'),
        CorruptCheckpoint,
        "stands there twice",
    ),
    ("metadata list", file_bytes({"__metadata__": []}), CorruptCheckpoint, "not a mapping of strings"),
    (
        "metadata number",
        file_bytes({"__metadata__": {"step": 3}}),
        CorruptCheckpoint,
        "not a mapping of strings",
    ),
    (
        "overlap",
        file_bytes({"k": entry(shape=[2], offsets=[0, 8]), "v": entry(offsets=[4, 8])}, bytes(8)),
        CorruptCheckpoint,
        "'v' at bytes 4 to 8 overlaps the one before",
    ),
    ("same place", file_bytes({"k": entry(), "v": entry()}, bytes(4)), CorruptCheckpoint, "overlaps"),
    (
        "hole",
        file_bytes({"k": entry(), "v": entry(offsets=[8, 12])}, bytes(12)),
        CorruptCheckpoint,
        "leaves a hole before it",
    ),
    (
        "hole at the start",
        file_bytes({"k": entry(offsets=[4, 8])}, bytes(8)),
        CorruptCheckpoint,
        "leaves a hole before it",
    ),
    (
        "empty inside",
        file_bytes({"k": entry(shape=[2], offsets=[0, 8]), "m": entry(shape=[0], offsets=[4, 4])}, bytes(8)),
        CorruptCheckpoint,
        "overlaps",
    ),
    (
        "too large a shape",
        file_bytes({"w": entry(shape=[1000, 1000])}, bytes(4)),
        CorruptCheckpoint,
        r"\[1000, 1000\] .* cannot lie at bytes 0 to 4",
    ),
    (
        "reversed",
        file_bytes({"w": entry(offsets=[4, 0])}, bytes(4)),
        CorruptCheckpoint,
        "cannot lie at bytes 4 to 0",
    ),
    ("negative", file_bytes({"w": entry(offsets=[-4, 0])}, bytes(4)), CorruptCheckpoint, "-4 is negative"),
    (
        "minus zero",
        file_bytes(b'{"w":{"dtype":"F32","shape":[0],"data_offsets":[-0,0]}}'),
        CorruptCheckpoint,
        "-0 is negative",
    ),
    ("floats", file_bytes({"w": entry(shape=[1.0])}, bytes(4)), CorruptCheckpoint, "impossible shape"),
    (
        "exponent",
        file_bytes(b'{"w":{"dtype":"F32","shape":[1e0],"data_offsets":[0,4]}}', bytes(4)),
        CorruptCheckpoint,
        "impossible shape",
    ),
    (
        "float offsets",
        file_bytes({"w": entry(offsets=[0.0, 4.0])}, bytes(4)),
        CorruptCheckpoint,
        "malformed offsets",
    ),
    (
        "three offsets",
        file_bytes({"w": entry(offsets=[0, 4, 8])}, bytes(4)),
        CorruptCheckpoint,
        "malformed offsets",
    ),
    (
        "huge offsets",
        file_bytes({"w": entry(offsets=[0, 1 << 64])}, bytes(4)),
        CorruptCheckpoint,
        "malformed offsets",
    ),
    ("true", file_bytes({"w": entry(shape=[True])}, bytes(4)), CorruptCheckpoint, "impossible shape"),
    (
        "shape null",
        file_bytes({"w": {"dtype": "F32", "shape": None, "data_offsets": [0, 4]}}, bytes(4)),
        CorruptCheckpoint,
        "impossible shape None",
    ),
    (
        "2^60 elements",
        file_bytes({"w": entry(shape=[1 << 60])}, bytes(4)),
        CorruptCheckpoint,
        "claims more than",
    ),
    (
        "product wraps",
        file_bytes({"w": entry(shape=[1 << 32, 1 << 32], offsets=[0, 0])}),
        CorruptCheckpoint,
        "claims more than",
    ),
    (
        "empty but huge",
        file_bytes({"w": entry(shape=[0, 1 << 62], offsets=[0, 0])}),
        CorruptCheckpoint,
        "claims more than",
    ),
    (
        "10^5 dimensions",
        file_bytes({"w": entry(shape=[1] * 100_000)}, bytes(4)),
        UnsupportedCheckpoint,
        "100000 dimensions",
    ),
    (
        "empty dtype",
        file_bytes({"lm_head.weight": entry("", [0], [0, 0])}),
        CorruptCheckpoint,
        "'lm_head.weight' has the unknown dtype ''",
    ),
    ("dtype list", file_bytes({"w": entry([], [0], [0, 0])}), CorruptCheckpoint, "unknown dtype"),  # type: ignore[arg-type]
    ("dtype case", file_bytes({"w": entry("f32")}, bytes(4)), CorruptCheckpoint, "unknown dtype 'f32'"),
    (
        "half an element",
        file_bytes({"w": entry("F4", [1], [0, 1])}, bytes(1)),
        CorruptCheckpoint,
        "cannot lie at",
    ),
    (
        "field missing",
        file_bytes({"w": {"dtype": "F32", "shape": [1]}}, bytes(4)),
        CorruptCheckpoint,
        "malformed",
    ),
    ("no mapping", file_bytes({"w": 3}), CorruptCheckpoint, "entry of tensor 'w' is malformed"),
    (
        "NaN",
        file_bytes(b'{"w":{"dtype":"F32","shape":[NaN],"data_offsets":[0,4]}}', bytes(4)),
        CorruptCheckpoint,
        "NaN is no JSON number",
    ),
    (
        "Infinity",
        file_bytes(b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,Infinity]}}', bytes(4)),
        CorruptCheckpoint,
        "Infinity is no JSON number",
    ),
    ("10k deep", file_bytes(b'{"w":' + b"[" * 10_000 + b"]" * 10_000 + b"}"), CorruptCheckpoint, "recursion"),
    (
        "10k deep objects",
        file_bytes(b'{"w":' + b'{"a":' * 10_000 + b"1" + b"}" * 10_001),
        CorruptCheckpoint,
        "recursion",
    ),
    (
        "deep dtype",
        file_bytes(
            b'{"w":{"shape":[],"data_offsets":[0,4],"dtype":' + b"[" * 900 + b"]" * 900 + b"}}", bytes(4)
        ),
        CorruptCheckpoint,
        "not sound JSON|unknown dtype",
    ),
    ("bad UTF-8", file_bytes(b'{"w\xff":1}'), CorruptCheckpoint, "utf-8"),
    (
        "lone surrogate",
        file_bytes(b'{"\\ud800":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', bytes(4)),
        CorruptCheckpoint,
        "surrogates not allowed",
    ),
    (
        "surrogate in metadata",
        file_bytes(b'{"__metadata__":{"a":"\\ud800"}}'),
        CorruptCheckpoint,
        "surrogates not allowed",
    ),
    (
        "1 MB name",
        file_bytes({"w" * 1_000_000: entry()}, bytes(4)),
        CorruptCheckpoint,
        "cannot be the name of a tensor",
    ),
    (
        "NUL in the name",
        file_bytes({"a\0b": entry()}, bytes(4)),
        CorruptCheckpoint,
        "cannot be the name of a tensor",
    ),
    (
        "many names, the last twice",
        file_bytes(b"{" + b",".join(b'"%d":1' % i for i in range(200_000)) + b',"199999":1}'),
        CorruptCheckpoint,
        "'199999' stands there twice",
    ),
]


@pytest.mark.parametrize(
    ("content", "kind", "reason"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN]
)
def test_a_broken_header_is_refused_with_its_reason(
    tmp_path: Path, content: bytes, kind: type[CheckpointError], reason: str
) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match=reason) as raised:
        open_checkpoint(tmp_path)
    assert raised.type is kind
    assert len(str(raised.value)) < 600


STRICTER = {
    "space",
    "twice",
    "1 MB name",
    "NUL in the name",
    "10^5 dimensions",
    "empty but huge",
}
"""What the library lets pass and we do not: no framework writes it."""


@pytest.mark.parametrize(("name", "content"), [case[:2] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_the_library_refuses_the_same(name: str, content: bytes) -> None:
    assert accepted_by_the_library(content) == (name in STRICTER)


def test_metadata_is_kept(tmp_path: Path) -> None:
    raw_safetensors.write(
        tmp_path / "model.safetensors", {"__metadata__": {"format": "pt"}, "w": entry()}, bytes(4)
    )
    assert open_checkpoint(tmp_path).metadata == {"format": "pt"}

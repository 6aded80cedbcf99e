"""Small files that claim, nest or share so much that a careless reader dies of them."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from pathlib import Path

from tests.writers.raw_pickle import (
    call,
    integer,
    integers,
    mapping,
    named,
    program,
    recall,
    remember,
    tensor,
    text,
)
from tests.writers.raw_safetensors import entry, file_bytes
from tests.writers.raw_zip import torch_archive

DEEP = 300_000
DEEPEST = 2_000_000
"""A tuple of that depth, hashed, ends the interpreter."""

MANY = 400_000


def laughs(leaf: bytes, levels: int = 30, *, mappings: bool = False) -> bytes:
    """Push a value with 10^levels paths through it, from `levels` objects."""
    code = leaf
    for level in range(levels):
        code += remember(level)
        if mappings:
            pairs = b"".join(integer(i) + recall(level) for i in range(10))
            code += pickle.POP + pickle.EMPTY_DICT + pickle.MARK + pairs + pickle.SETITEMS
        else:
            code += pickle.POP + pickle.MARK + recall(level) * 10 + pickle.TUPLE
    return code


def deep_tuple(depth: int = DEEP) -> bytes:
    return pickle.NONE + pickle.TUPLE1 * depth


def deep_list() -> bytes:
    return pickle.EMPTY_LIST * DEEP + pickle.APPEND * (DEEP - 1)


def deep_mapping(depth: int = DEEP // 2) -> bytes:
    return (pickle.EMPTY_DICT + pickle.NONE) * depth + pickle.NONE + pickle.SETITEM * depth


def deep_call(depth: int = DEEP) -> bytes:
    first = named("m.f") + remember(0)
    return first + recall(0) * depth + pickle.EMPTY_TUPLE + (pickle.NEWOBJ + pickle.TUPLE1) * depth


def repeated_copies(number: int = 100_000) -> bytes:
    """Many calls, each given the same long argument tuple: a copy for each would be 80 GB."""
    start = pickle.MARK + pickle.NONE * number + pickle.TUPLE + remember(0) + named("m.f") + remember(1)
    each = recall(1) + recall(0) + pickle.EMPTY_DICT + pickle.NEWOBJ_EX + pickle.POP
    return start + each * number


def repeated_sizes(number: int = 100_000) -> bytes:
    """The same with a call that is known to make a tuple of a list."""
    start = pickle.MARK + pickle.NONE * number + pickle.LIST + pickle.TUPLE1 + remember(0)
    each = recall(1) + recall(0) + pickle.REDUCE + pickle.POP
    return start + named("torch.Size") + remember(1) + each * number


def repeated_states(number: int = 100_000) -> bytes:
    """Many tensor subclasses that share one long state, each of which is searched for an attribute."""
    start = pickle.MARK + pickle.EMPTY_DICT * number + pickle.TUPLE + remember(0)
    function = named("torch._tensor._rebuild_from_type_v2") + remember(1)
    arguments = (
        pickle.MARK + named("torch._utils._rebuild_wrapper_subclass") + pickle.NONE
        + pickle.MARK + pickle.NONE * 2 + pickle.EMPTY_TUPLE + pickle.TUPLE
        + recall(0) + pickle.TUPLE + remember(2)
    )  # fmt: skip
    return start + function + arguments + (recall(1) + recall(2) + pickle.REDUCE + pickle.POP) * number


def colliding_keys(number: int = 100_000) -> bytes:
    """Integers of one hash: a dictionary of them takes a quadratic number of comparisons."""
    modulus = (1 << 61) - 1
    return mapping(*((integer(i * modulus), pickle.NONE) for i in range(1, number)))


def slow_key(number: int = 100_000) -> bytes:
    """One long integer as a key, again and again: its hash is computed anew each time."""
    digits = struct.pack("<i", 1 << 20) + b"\x01" * (1 << 20)
    pairs = (recall(0) + pickle.NONE) * number
    return pickle.LONG4 + digits + remember(0) + pickle.EMPTY_DICT + pickle.MARK + pairs + pickle.SETITEMS


def wide_key() -> bytes:
    return mapping((laughs(integer(1), 9), pickle.NONE))


def long_paths() -> bytes:
    """Tensors by the hundred thousand, each below a name of 4000 characters."""
    each = b"".join(integer(i) + recall(0) for i in range(100_000))
    inner = pickle.EMPTY_DICT + pickle.MARK + each + pickle.SETITEMS
    return tensor(integers(4), integers(1)) + remember(0) + mapping((text("x" * 4000), inner))


def with_shape(shape: bytes, strides: bytes | None = None) -> bytes:
    return mapping((text("w"), tensor(shape, strides or integers(1))))


def with_storage(reference: bytes) -> bytes:
    parts = (reference, integer(0), integers(4), integers(1), pickle.NEWFALSE, pickle.NONE)
    return mapping((text("w"), call("torch._utils._rebuild_tensor_v2", *parts)))


def with_storage_key(key: bytes) -> bytes:
    reference = pickle.MARK + text("storage") + named("torch.FloatStorage") + key + text("cpu") + integer(4)
    return with_storage(reference + pickle.TUPLE + pickle.BINPERSID)


HUGE = integer(1 << (8 * 20_000_000 - 8))

PICKLES: dict[str, Callable[[], bytes]] = {
    "deep tuple": deep_tuple,
    "deepest tuple": lambda: deep_tuple(DEEPEST),
    "deepest key": lambda: mapping((deep_tuple(DEEPEST), pickle.NONE)),
    "deep list": deep_list,
    "deep mapping": deep_mapping,
    "deep call": deep_call,
    "deep reference": lambda: pickle.NONE + pickle.BINPERSID * DEEP,
    "deep key": lambda: mapping((deep_tuple(), pickle.NONE)),
    "deep reference as key": lambda: mapping((pickle.NONE + pickle.BINPERSID * DEEP, pickle.NONE)),
    "deep shape": lambda: with_shape(deep_tuple()),
    "deep element of a shape": lambda: with_shape(pickle.MARK + deep_tuple() + pickle.TUPLE),
    "deep strides": lambda: with_shape(integers(4), deep_tuple()),
    "deep storage": lambda: with_storage(deep_tuple() + pickle.BINPERSID),
    "deep storage key": lambda: with_storage_key(deep_tuple()),
    "tensor of deep shape as key": lambda: mapping((tensor(deep_tuple(), integers(1)), pickle.NONE)),
    "deep torch.Size": lambda: call("torch.Size", deep_tuple()),
    "memo index": lambda: pickle.NONE + pickle.LONG_BINPUT + struct.pack("<I", 1 << 28),
    "bytes of 32 GB": lambda: pickle.BINBYTES8 + struct.pack("<Q", 1 << 35),
    "text of 32 GB": lambda: pickle.BINUNICODE8 + struct.pack("<Q", 1 << 35),
    "bytearray of 2 GB": lambda: pickle.BYTEARRAY8 + struct.pack("<Q", 1 << 31),
    "frame of 32 GB": lambda: pickle.FRAME + struct.pack("<Q", 1 << 35),
    "huge integer": lambda: HUGE,
    "huge integer as text": lambda: b"L" + b"9" * 10_000_000 + b"L\n",
    "huge integer as key": lambda: mapping((HUGE, pickle.NONE)),
    "huge integer as value": lambda: mapping((text("step"), HUGE)),
    "huge dimension": lambda: with_shape(pickle.MARK + HUGE + remember(0) + recall(0) * 7 + pickle.TUPLE),
    "huge stride": lambda: with_shape(integers(4), pickle.MARK + HUGE + pickle.TUPLE),
    "huge storage key": lambda: with_storage_key(HUGE),
    "laughs": lambda: laughs(pickle.NONE),
    "laughs in mappings": lambda: laughs(pickle.NONE, mappings=True),
    "laughs of tensors": lambda: laughs(tensor(integers(4), integers(1))),
    "laughs of tensors in mappings": lambda: laughs(tensor(integers(4), integers(1)), mappings=True),
    "laughs as key": wide_key,
    "laughs as shape": lambda: with_shape(laughs(integer(1))),
    "laughs as strides": lambda: with_shape(integers(4), laughs(integer(1))),
    "laughs as storage key": lambda: with_storage_key(laughs(integer(1))),
    "laughs as storage": lambda: with_storage(laughs(integer(1)) + pickle.BINPERSID),
    "laughs beside a tensor": lambda: mapping((text("x"), laughs(pickle.NONE, mappings=True))),
    "laughs of a stub": lambda: (
        named("argparse.Namespace") + pickle.EMPTY_TUPLE + pickle.NEWOBJ
        + mapping((text("x"), laughs(pickle.NONE, mappings=True))) + pickle.BUILD
    ),
    "a list in itself": lambda: pickle.EMPTY_LIST + remember(0) + recall(0) + pickle.APPEND,
    "copies": repeated_copies,
    "sizes": repeated_sizes,
    "states": repeated_states,
    "colliding keys": colliding_keys,
    "slow key": slow_key,
    "long paths": long_paths,
    "marks": lambda: pickle.MARK * MANY,
    "sets": lambda: pickle.EMPTY_SET * MANY,
    "mappings": lambda: pickle.EMPTY_DICT * MANY,
    "nones": lambda: pickle.NONE * MANY * 4,
    "repeated memo": lambda: pickle.NONE + pickle.MEMOIZE * MANY,
    "torch archive in it": lambda: text("PK\x05\x06" * 100),
}  # fmt: skip


def pickle_bomb(name: str) -> bytes:
    """The whole pickle."""
    return program(PICKLES[name]())


def write_torch(path: Path, pickled: bytes) -> None:
    """As a `torch.save` file with a storage of 16 bytes."""
    path.write_bytes(torch_archive(pickled, {"0": bytes(16)}).to_bytes())


def nested_json(opening: bytes, closing: bytes, depth: int) -> bytes:
    return b'{"a":' + opening * depth + b"1" + closing * depth + b"}"


HEADERS: dict[str, Callable[[], bytes]] = {
    "10k lists": lambda: file_bytes(nested_json(b"[", b"]", 10_000)),
    "10k objects": lambda: file_bytes(nested_json(b'{"a":', b"}", 10_000)),
    "a million open lists": lambda: file_bytes(b'{"a":' + b"[" * 1_000_000),
    "100,000 dimensions": lambda: file_bytes({"w": entry(shape=[1] * 100_000)}, bytes(4)),
    "a megabyte of name": lambda: file_bytes({"w" * 1_000_000: entry()}, bytes(4)),
    "a megabyte of dtype": lambda: file_bytes({"w": entry("F" * 1_000_000)}, bytes(4)),
    "a long integer": lambda: file_bytes(b'{"w":' + b"9" * 1_000_000 + b"}"),
    "empty lists": lambda: file_bytes(b'{"a":[' + b"[]," * 200_000 + b"1]}"),
    "many names, the last one twice": lambda: file_bytes(
        b"{" + b",".join(b'"%d":1' % i for i in range(100_000)) + b',"99999":1}'
    ),
    "a header of 2^63 bytes": lambda: file_bytes(b"{}", length=1 << 63),
    "a header of 200 MB": lambda: file_bytes(b"{}", length=200_000_000),
    "a header of 90 MB that is not there": lambda: file_bytes(b"{}", length=90_000_000),
}

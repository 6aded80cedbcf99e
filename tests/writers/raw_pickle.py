"""Pickles opcode by opcode, as an attacker writes them."""

from __future__ import annotations

import pickle
import struct

START = pickle.PROTO + b"\x04"
STOP = pickle.STOP


def text(value: str) -> bytes:
    """Push a string."""
    data = value.encode("utf-8", "surrogatepass")
    return pickle.BINUNICODE + struct.pack("<I", len(data)) + data


def integer(value: int) -> bytes:
    """Push an integer of any size."""
    data = pickle.encode_long(value)
    if len(data) < 256:
        return pickle.LONG1 + bytes([len(data)]) + data
    return pickle.LONG4 + struct.pack("<i", len(data)) + data


def integers(*values: int) -> bytes:
    """Push a tuple of integers."""
    return pickle.MARK + b"".join(map(integer, values)) + pickle.TUPLE


def named(path: str) -> bytes:
    """Push a global by its dotted name."""
    module, name = path.rsplit(".", 1)
    return pickle.GLOBAL + f"{module}\n{name}\n".encode()


def call(path: str, *arguments: bytes) -> bytes:
    """Push the result of calling a global."""
    return named(path) + pickle.MARK + b"".join(arguments) + pickle.TUPLE + pickle.REDUCE


def mapping(*pairs: tuple[bytes, bytes]) -> bytes:
    """Push a dictionary."""
    return pickle.EMPTY_DICT + pickle.MARK + b"".join(key + value for key, value in pairs) + pickle.SETITEMS


def remember(index: int) -> bytes:
    """Memoize the top of the stack."""
    return pickle.LONG_BINPUT + struct.pack("<I", index)


def recall(index: int) -> bytes:
    """Push what was memoized."""
    return pickle.LONG_BINGET + struct.pack("<I", index)


def program(*parts: bytes) -> bytes:
    """A whole pickle."""
    return START + b"".join(parts) + STOP


def storage(key: str, elements: int, kind: str = "FloatStorage") -> bytes:
    """Push a reference to a storage of a torch archive."""
    return (
        pickle.MARK
        + text("storage") + named(f"torch.{kind}") + text(key) + text("cpu") + integer(elements)
        + pickle.TUPLE + pickle.BINPERSID
    )  # fmt: skip


def tensor(
    shape: bytes,
    strides: bytes,
    *,
    key: str = "0",
    elements: int = 4,
    offset: int = 0,
    kind: str = "FloatStorage",
) -> bytes:
    """Push a tensor; shape and strides are pushed by the caller's code."""
    return call(
        "torch._utils._rebuild_tensor_v2",
        storage(key, elements, kind), integer(offset), shape, strides, pickle.NEWFALSE,
        call("collections.OrderedDict"),
    )  # fmt: skip

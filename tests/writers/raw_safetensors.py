"""safetensors files byte by byte, sound or not."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, deserialize


def entry(dtype: str = "F32", shape: Any = (), offsets: Any = (0, 4)) -> dict[str, Any]:
    """One tensor's entry in a header."""
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def file_bytes(header: Any, data: bytes = b"", *, length: int | None = None) -> bytes:
    """A file; a header that is no bytes is written as JSON, its length may be a lie."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def write(path: Path, header: Any, data: bytes = b"", *, length: int | None = None) -> Path:
    """Write such a file."""
    path.write_bytes(file_bytes(header, data, length=length))
    return path


def accepted_by_the_library(content: bytes) -> bool:
    """Whether the library can read the whole file."""
    try:
        deserialize(content)
    except (SafetensorError, KeyError):  # it raises KeyError for a dtype that Python has no name for
        return False
    return True

"""The local copy of the tensors that later differences need, so that the job may delete its checkpoints.

A cached checkpoint is a safetensors file of the parameters that have a role, in their stored dtype, with
the model's configuration beside them: the same reader opens it, and a restart finds it. It is written
while the tensors pass by, under another name until it is whole.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self

from torch import Tensor

from foreshock.daemon.formats.base import READABLE_DTYPES, TensorInfo
from foreshock.daemon.formats.reading import bytes_of
from foreshock.daemon.pipeline.request import CacheOrder

_TAGS = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
}
_PARTIAL = ".partial"


class CacheWriter:
    """Writes one cached checkpoint tensor by tensor, in any order.

    Args:
        path: of the finished file.
        tensors: everything that will be written.
        metadata: strings to keep beside the tensors.

    Raises:
        OSError: the disk does not take the header.
    """

    def __init__(self, path: Path, tensors: Iterable[TensorInfo], metadata: Mapping[str, str]) -> None:
        self._path = path
        self._partial = path.with_name(path.name + _PARTIAL)
        self._offsets: dict[str, int] = {}
        self._failure = ""
        header: dict[str, object] = {"__metadata__": dict(metadata)}
        position = 0
        for info in tensors:
            if info.dtype not in READABLE_DTYPES:
                continue
            end = position + info.num_bytes
            header[info.name] = {
                "dtype": _TAGS[info.dtype],
                "shape": list(info.shape),
                "data_offsets": [position, end],
            }
            self._offsets[info.name] = position
            position = end
        encoded = json.dumps(header).encode("utf-8", "surrogateescape")
        encoded += b" " * (-len(encoded) % 8)
        self._data_start = 8 + len(encoded)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._partial.open("wb")
        try:
            self._file.write(struct.pack("<Q", len(encoded)) + encoded)
            self._file.truncate(self._data_start + position)
            self._file.flush()
        except OSError:
            with contextlib.suppress(OSError):
                self._file.close()
            self._partial.unlink(missing_ok=True)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave nothing behind unless `finish` was called."""
        with contextlib.suppress(OSError):  # a full disk, which `finish` has told
            self._file.close()
        self._partial.unlink(missing_ok=True)

    def write(self, name: str, tensor: Tensor) -> None:
        """Keep one tensor; a second time, or after a failure, does nothing.

        A full disk must not cost the measurement: the failure is remembered for `finish`.
        """
        offset = self._offsets.get(name)
        if offset is None or self._failure:
            return
        try:
            self._file.seek(self._data_start + offset)
            self._file.write(bytes_of(tensor))
        except OSError as error:
            self._failure = f"{self._path}: {error.strerror}"
        else:
            del self._offsets[name]

    def finish(self) -> str:
        """Make the file visible; when that fails, or a tensor was never written, the reason why."""
        if self._offsets and not self._failure:
            self._failure = f"{self._path}: {len(self._offsets)} tensors could not be read"
        if self._failure:
            return self._failure
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._partial.replace(self._path)
        except OSError as error:
            self._failure = f"{self._path}: {error.strerror}"
        return self._failure


def evict(order: CacheOrder) -> tuple[str, ...]:
    """Remove what no later difference needs, then the oldest beyond the size bound.

    Returns:
        Names of needed files that had to go for lack of room, so that somebody can be told.
    """
    directory = Path(order.target).parent
    wanted = {Path(path).name for path in order.keep} | {Path(order.target).name}
    sizes: dict[str, int] = {}
    for path in sorted(directory.iterdir()):
        if path.name in wanted:
            sizes[path.name] = path.stat().st_size
        elif path.name.endswith((".safetensors", _PARTIAL)):
            path.unlink(missing_ok=True)
    crowded: list[str] = []
    total = sum(sizes.values())
    for name in sorted(sizes):  # names sort by step
        if total <= order.max_bytes:
            break
        (directory / name).unlink(missing_ok=True)
        total -= sizes[name]
        crowded.append(name)
    return tuple(crowded)

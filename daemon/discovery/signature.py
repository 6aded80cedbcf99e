"""Whether a checkpoint is still the same: cheaply by file sizes and times, surely by samples of bytes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from foreshock.daemon.formats.base import Location
from foreshock.daemon.formats.files import Files, explain, open_directory

_SAMPLE_BYTES = 4096
MAX_FILES = 100_000


@dataclass(frozen=True, slots=True)
class Listing:
    """The regular files of a checkpoint, sorted by name, with size and time of change."""

    files: tuple[tuple[str, int, int], ...]

    def state(self, name: str) -> tuple[int, int] | None:
        """Size and time of change of a file; None when it is not there."""
        return next(((size, time) for each, size, time in self.files if each == name), None)

    @property
    def signature(self) -> str:
        """Digest of names, sizes and times: equal as long as nothing was written."""
        digest = hashlib.sha256()
        for name, size, modified_ns in self.files:
            digest.update(f"{name}\0{size}\0{modified_ns}\0".encode("utf-8", "surrogateescape"))
        return digest.hexdigest()[:24]


def list_files(path: Path) -> Listing:
    """Files of a checkpoint directory (not of directories in it), or the one file that it is.

    Raises:
        VanishedCheckpoint, UnreadableCheckpoint: the directory is gone or closed.
    """
    try:
        if not path.is_dir():
            status = path.stat()
            return Listing(((path.name, status.st_size, status.st_mtime_ns),))
        return Listing(tuple(sorted(_entries(path))))
    except OSError as error:
        raise explain(error, path) from error


def _entries(directory: Path) -> Iterator[tuple[str, int, int]]:
    descriptor = open_directory(directory)
    try:
        with os.scandir(descriptor) as entries:
            for entry in islice((each for each in entries if each.is_file()), MAX_FILES):
                status = entry.stat()
                yield entry.name, status.st_size, status.st_mtime_ns
    finally:
        os.close(descriptor)


def content_digest(path: Path, names: tuple[str, ...]) -> str:
    """Digest of the first, middle and last bytes of the named files: differs when weights differ."""
    files: Files = Location.of(path).files
    digest = hashlib.sha256()
    for name in names:
        size = files.state(name).size
        digest.update(f"{name}\0{size}\0".encode("utf-8", "surrogateescape"))
        for offset in sorted({0, size // 2, max(size - _SAMPLE_BYTES, 0)}):
            digest.update(files.read(name, offset, min(_SAMPLE_BYTES, size - offset)))
    return digest.hexdigest()[:24]

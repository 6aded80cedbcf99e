"""Whether a checkpoint is still the same: cheaply by file sizes and times, surely by samples of bytes."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from foreshock.daemon.formats.base import Location
from foreshock.daemon.formats.files import Files, explain

_SAMPLE_BYTES = 4096
MAX_FILES = 100_000


@dataclass(frozen=True, slots=True)
class Listing:
    """The regular files of a checkpoint, sorted by name, with size and time of change."""

    files: tuple[tuple[str, int, int], ...]

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
        found = []
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_file():
                    status = entry.stat()
                    found.append((entry.name, status.st_size, status.st_mtime_ns))
                if len(found) > MAX_FILES:
                    break
        return Listing(tuple(sorted(found)))
    except OSError as error:
        raise explain(error, path) from error


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

"""Whether a checkpoint is still the same: cheaply by file sizes and times, surely by samples of bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from foreshock.daemon.formats.base import Location
from foreshock.daemon.formats.files import Files, explain

_SAMPLE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Listing:
    """The regular files of a checkpoint by relative path, sorted, with size and time of change."""

    files: Mapping[str, tuple[int, int]]

    @property
    def names(self) -> frozenset[str]:
        """Relative paths of the files."""
        return frozenset(self.files)

    def state(self, name: str) -> tuple[int, int] | None:
        """Size and time of change of a file; None when it is not there."""
        return self.files.get(name)

    @property
    def signature(self) -> str:
        """Digest of names, sizes and times: equal as long as nothing was written."""
        digest = hashlib.sha256()
        for name, (size, modified_ns) in self.files.items():
            digest.update(f"{name}\0{size}\0{modified_ns}\0".encode("utf-8", "surrogateescape"))
        return digest.hexdigest()[:24]


def list_files(path: Path) -> Listing:
    """All files below a checkpoint directory, or the one file that it is.

    Raises:
        VanishedCheckpoint, UnreadableCheckpoint, UnsupportedCheckpoint: see `Files.entries`.
    """
    try:
        if not path.is_dir():
            status = path.stat()
            return Listing({path.name: (status.st_size, status.st_mtime_ns)})
    except OSError as error:
        raise explain(error, path) from error
    return Listing({entry.name: (entry.size, entry.modified_ns) for entry in Files(path).entries()})


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

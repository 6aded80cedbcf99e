"""What lies below a directory: every file by its relative path, with size and time of change.

Folders are descended into by descriptor and never through links, so a folder that turns into a link while
it is listed leads nowhere. Access times stay as they are where that is allowed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MAX_DEPTH = 16
MAX_FILES = 200_000


class TooManyFiles(Exception):
    """More files, or deeper folders, than any checkpoint has."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file, a link, an empty folder: whatever is no folder with something in it.

    Attributes:
        name: path relative to the listed directory, with `/`.
    """

    name: str
    size: int
    modified_ns: int


def list_tree(root: Path) -> list[FileEntry]:
    """All files below a directory, sorted by name.

    Raises:
        OSError: the directory, or a folder in it, is gone or closed.
        TooManyFiles: beyond `MAX_FILES` files or `MAX_DEPTH` folders inside each other.
    """
    descriptor = open_directory(root)
    try:
        found: list[FileEntry] = []
        for entry in _below(descriptor, "", 0):
            if len(found) == MAX_FILES:
                raise TooManyFiles(f"{root}: more than {MAX_FILES} files")
            found.append(entry)
    finally:
        os.close(descriptor)
    return sorted(found, key=lambda entry: entry.name)


def _below(directory: int, prefix: str, depth: int) -> Iterator[FileEntry]:
    if depth == MAX_DEPTH:
        raise TooManyFiles(f"{prefix}: folders more than {MAX_DEPTH} deep")
    with os.scandir(directory) as entries:
        for entry in entries:
            name = prefix + entry.name
            if not entry.is_dir(follow_symlinks=False):
                yield _leaf(name, entry)
                continue
            inner = open_directory(entry.name, within=directory)
            try:
                empty = True
                for found in _below(inner, f"{name}/", depth + 1):
                    empty = False
                    yield found
                if empty:
                    yield _leaf(name, entry)
            finally:
                os.close(inner)


def _leaf(name: str, entry: os.DirEntry[str]) -> FileEntry:
    """What a link leads to, or the link itself when it leads nowhere."""
    try:
        status = entry.stat()
    except OSError:
        status = entry.stat(follow_symlinks=False)
    return FileEntry(name, status.st_size, status.st_mtime_ns)


def open_directory(path: Path | str, *, within: int | None = None) -> int:
    """A descriptor to list a directory by, without touching its access time where that is allowed.

    Args:
        within: descriptor of the directory that holds it; then the last component may be no link.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    if within is not None:
        flags |= os.O_NOFOLLOW
    try:
        return os.open(path, flags | os.O_NOATIME, dir_fd=within)
    except PermissionError:  # O_NOATIME is for the owner only
        return os.open(path, flags, dir_fd=within)


def at_root(names: frozenset[str]) -> frozenset[str]:
    """The files that lie in the directory itself."""
    return frozenset(name for name in names if "/" not in name)


def below(names: frozenset[str], folder: str) -> frozenset[str]:
    """The files below a folder, relative to it; all of them for an empty folder."""
    if not folder:
        return names
    prefix = f"{folder}/"
    return frozenset(name.removeprefix(prefix) for name in names if name.startswith(prefix))


def folders(names: frozenset[str]) -> tuple[str, ...]:
    """Every folder that holds a file at any depth, by relative path, sorted; without the directory itself."""
    found: set[str] = set()
    for name in names:
        folder = name.rpartition("/")[0]
        while folder and folder not in found:
            found.add(folder)
            folder = folder.rpartition("/")[0]
    return tuple(sorted(found))

"""The file of a SQLite database, as far as it is not SQLite's own business.

It is looked at with stat and never opened here: closing any descriptor of it would drop the locks that
SQLite holds for this whole process.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from foreshock.storage.errors import DatabaseUnavailable

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600
COMPANIONS = ("", "-wal", "-journal")


@dataclass(frozen=True, slots=True)
class SqliteFile:
    """A database file that is known again.

    Attributes:
        identity: device and inode when it was opened.
    """

    path: Path
    identity: tuple[int, int]

    def verify(self) -> None:
        """Ask whether the path still leads to the file that was opened.

        SQLite itself would go on and commit into the deleted file without a word.

        Raises:
            DatabaseUnavailable: it was deleted or replaced.
        """
        if _identity(self.path) != self.identity:
            raise DatabaseUnavailable(
                f"{self.path} was deleted or replaced while it was open; restart to go on with what is there"
            )

    def size_bytes(self) -> int:
        """Together with its journals."""
        return sum(_size(Path(f"{self.path}{suffix}")) for suffix in COMPANIONS)


def open_file(path: Path, *, create: bool) -> SqliteFile:
    """The file at the path, made if need be: readable by its owner alone, as is its directory.

    Raises:
        DatabaseUnavailable: there is none, or it cannot be made.
    """
    if create:
        _make_directory(path.parent)
        _make_file(path)
    identity = _identity(path)
    if identity is None:
        raise DatabaseUnavailable(f"{path}: there is no database; `foreshock db upgrade` makes one")
    if not stat.S_ISREG(path.stat().st_mode):
        raise DatabaseUnavailable(f"{path} is not a regular file")
    return SqliteFile(path, identity)


def _make_directory(directory: Path) -> None:
    try:
        missing = [parent for parent in (directory, *directory.parents) if not parent.exists()]
        for parent in reversed(missing):
            parent.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
    except OSError as error:
        raise DatabaseUnavailable(f"{directory}: the directory cannot be made: {error.strerror}") from error


def _make_file(path: Path) -> None:
    """With its final mode from the first moment, and without opening it."""
    try:
        os.mknod(path, FILE_MODE | stat.S_IFREG)
    except FileExistsError:
        pass
    except OSError as error:
        raise DatabaseUnavailable(f"{path}: the file cannot be made: {error.strerror}") from error


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise DatabaseUnavailable(f"{path}: {error.strerror}") from error
    return status.st_dev, status.st_ino


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0

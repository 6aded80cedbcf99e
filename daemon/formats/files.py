"""The only place that touches a job's files: confined, counted, read-only, nothing held open.

Every access opens by name below one directory, reads at offsets with `preadv`, and closes. A mapping
would turn a truncation into SIGBUS, and a descriptor kept open would make the job's own `rm -rf` fail
on NFS. What changed while it was read is reported, never returned.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from foreshock.daemon.errors import (
    CheckpointError,
    CorruptCheckpoint,
    UnreadableCheckpoint,
    VanishedCheckpoint,
)

MAX_FILE_NAME_BYTES = 4096
_READ_BYTES = 16 << 20  # one system call reads at most this much

_RWF_DONTCACHE = 0x80  # Linux 6.14: read without leaving pages in the page cache
_SYS_OPENAT2 = 437
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_BENEATH = 0x08


@dataclass(frozen=True, slots=True)
class FileState:
    """What identifies the content of a file without reading it."""

    size: int
    modified_ns: int
    inode: int


class _OpenHow(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


_libc = ctypes.CDLL(None, use_errno=True)


def _open_beneath(directory: int, name: str, flags: int) -> int:
    """`openat2` that the kernel keeps below `directory`, links and races included."""
    how = _OpenHow(flags, 0, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)
    descriptor: int = _libc.syscall(
        _SYS_OPENAT2,
        directory,
        ctypes.c_char_p(os.fsencode(name)),
        ctypes.byref(how),
        ctypes.sizeof(how),
    )
    if descriptor < 0:
        code = ctypes.get_errno()
        if code == errno.ENOSYS:  # a kernel before 5.6: follow no link at all
            return os.open(name, flags | os.O_NOFOLLOW, dir_fd=directory)
        raise OSError(code, os.strerror(code), name)
    return descriptor


def checked_name(name: object, *, where: str) -> str:
    """A file name found inside a checkpoint, or `CorruptCheckpoint` if it could lead outside of it."""
    if not isinstance(name, str) or not name or len(os.fsencode(name)) > MAX_FILE_NAME_BYTES:
        raise CorruptCheckpoint(f"{where}: {name!r:.80} is not a file name")
    parts = name.split("/")
    if "\0" in name or name.startswith("/") or ".." in parts:
        raise CorruptCheckpoint(f"{where}: file name {name!r:.80} leads outside of the checkpoint")
    return name


class Files:
    """The files below one directory.

    Attributes:
        root: the directory; it may itself be reached through links.
        bytes_read: so far, of headers and data.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bytes_read = 0
        self._read_flags = _RWF_DONTCACHE

    def names(self) -> tuple[str, ...]:
        """Names of the entries of the directory itself, sorted."""
        with self._explained(""):
            return tuple(sorted(os.listdir(self.root)))  # noqa: PTH208 - names are wanted, not paths

    def exists(self, name: str) -> bool:
        """Whether a regular file of that name can be opened below the root."""
        try:
            self.state(name)
        except VanishedCheckpoint:
            return False
        return True

    def state(self, name: str) -> FileState:
        """Size and identity of a file."""
        with self._opened(name) as descriptor:
            return _state_of(descriptor)

    def read(self, name: str, offset: int, size: int) -> bytearray:
        """Exactly `size` bytes at `offset`; `VanishedCheckpoint` if the file ends before."""
        buffer = bytearray(size)
        self.read_into(name, offset, memoryview(buffer))
        return buffer

    def read_whole(self, name: str, *, limit: int) -> bytearray:
        """A small file; `CorruptCheckpoint` when it is larger than `limit` bytes."""
        size = self.state(name).size
        if size > limit:
            raise CorruptCheckpoint(
                f"{self.root / name}: {size} bytes, at most {limit} are read of such a file"
            )
        return self.read(name, 0, size)

    def read_into(self, name: str, offset: int, buffer: memoryview) -> None:
        """Fill `buffer` from `offset`.

        Raises:
            VanishedCheckpoint: the file is gone, ends too early, or changed while it was read.
            UnreadableCheckpoint: the operating system refuses.
            CorruptCheckpoint: the name leads outside of the root.
        """
        with self._opened(name) as descriptor:
            before = _state_of(descriptor)
            done = 0
            while done < len(buffer):
                count = self._pread(descriptor, buffer[done : done + _READ_BYTES], offset + done)
                if count == 0:
                    raise VanishedCheckpoint(
                        f"{self.root / name}: ends at byte {offset + done},"
                        f" {offset + len(buffer)} were expected: it was cut while it was read"
                    )
                done += count
            if _state_of(descriptor) != before:
                raise VanishedCheckpoint(f"{self.root / name}: changed while it was read")
        self.bytes_read += len(buffer)

    def _pread(self, descriptor: int, buffer: memoryview, offset: int) -> int:
        try:
            return os.preadv(descriptor, [buffer], offset, self._read_flags)
        except OSError as error:
            if not self._read_flags or error.errno not in {errno.EOPNOTSUPP, errno.EINVAL}:
                raise
            self._read_flags = 0  # this filesystem or kernel cannot read past the cache
            return os.preadv(descriptor, [buffer], offset, 0)

    @contextmanager
    def _opened(self, name: str) -> Iterator[int]:
        with self._explained(name):
            directory = os.open(self.root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                descriptor = _open_for_reading(directory, name)
            finally:
                os.close(directory)
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise CorruptCheckpoint(f"{self.root / name}: not a regular file")
                yield descriptor
            finally:
                os.close(descriptor)

    @contextmanager
    def _explained(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise explain(error, self.root / name) from error


def _open_for_reading(directory: int, name: str) -> int:
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # a FIFO must not block
    try:
        return _open_beneath(directory, name, flags | os.O_NOATIME)
    except PermissionError:  # O_NOATIME is for the owner only
        return _open_beneath(directory, name, flags)


def _state_of(descriptor: int) -> FileState:
    status = os.fstat(descriptor)
    return FileState(status.st_size, status.st_mtime_ns, status.st_ino)


def explain(error: OSError, path: Path) -> CheckpointError:
    """The error of ours that says what an operating-system error means to a reader of checkpoints."""
    if error.errno in {errno.ENOENT, errno.ESTALE, errno.ENOTDIR}:
        return VanishedCheckpoint(f"{path}: not there (any more)")
    if error.errno in {errno.EXDEV, errno.ELOOP}:
        return CorruptCheckpoint(f"{path}: a link that leads outside of the checkpoint, or in a circle")
    if error.errno in {errno.EACCES, errno.EPERM}:
        return UnreadableCheckpoint(f"{path}: permission denied; {_owner(path)}")
    return UnreadableCheckpoint(f"{path}: {error.strerror or error}")


def _owner(path: Path) -> str:
    """Who may read the file, as far as it can be told."""
    try:
        status = path.stat()
    except OSError:
        return f"we are uid {os.geteuid()}"
    mode = stat.filemode(status.st_mode)
    return (
        f"it is {mode} of uid {status.st_uid}, gid {status.st_gid}; we are uid {os.geteuid()}:"
        " run Foreshock as the same user or group"
    )

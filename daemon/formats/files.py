"""The only place that touches a job's files: confined, counted, read-only, nothing held open.

Every access opens by name below one directory, reads at offsets with `preadv`, and closes. A mapping
would turn a truncation into SIGBUS, and a descriptor kept open would make the job's own `rm -rf` fail
on NFS. What changed since it was first looked at is reported, never returned.
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
    UnsupportedCheckpoint,
    VanishedCheckpoint,
)
from foreshock.daemon.formats.quoting import shown
from foreshock.daemon.formats.tree import FileEntry, TooManyFiles, list_tree

MAX_FILE_NAME_BYTES = 4096
MAX_COMPONENT_BYTES = 255
_READ_BYTES = 16 << 20  # one system call reads at most this much
_OPEN_BYTES = 64 << 20  # and one descriptor at most this much, so that none stays open for long

_RWF_DONTCACHE = 0x80  # Linux 6.14: read without leaving pages in the page cache
_SYS_OPENAT2 = 437
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_BENEATH = 0x08
_RENAME_RACES = 100  # any rename on the machine may make openat2 ask for another try at a link with `..`


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
    path = ctypes.c_char_p(os.fsencode(name))
    code = errno.EAGAIN
    for _ in range(_RENAME_RACES):
        descriptor: int = _libc.syscall(_SYS_OPENAT2, directory, path, ctypes.byref(how), ctypes.sizeof(how))
        if descriptor >= 0:
            return descriptor
        code = ctypes.get_errno()
        if code != errno.EAGAIN:
            break
    filtered = code == errno.EPERM and not flags & os.O_NOATIME  # how old seccomp filters refuse new calls
    if code == errno.ENOSYS or filtered:
        return _open_without_links(directory, name, flags)
    raise OSError(code, os.strerror(code), name)


def _open_without_links(directory: int, name: str, flags: int) -> int:
    """For kernels before 5.6: one component after the other, none of which may be a link."""
    *folders, file = [part for part in name.split("/") if part not in {"", "."}] or ["."]
    current = os.dup(directory)
    try:
        for folder in folders:
            inner = os.open(folder, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=current)
            os.close(current)
            current = inner
            if stat.S_ISLNK(os.fstat(current).st_mode):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
        return os.open(file, flags | os.O_NOFOLLOW, dir_fd=current)
    finally:
        os.close(current)


def checked_name(name: object, *, where: str) -> str:
    """A file name found inside a checkpoint, or `CorruptCheckpoint` if it could lead outside of it."""
    encoded = _encoded(name)
    if not isinstance(name, str) or not encoded:
        raise CorruptCheckpoint(f"{where}: {shown(name)} is not a file name")
    parts = encoded.split(b"/")
    if len(encoded) > MAX_FILE_NAME_BYTES or max(map(len, parts)) > MAX_COMPONENT_BYTES:
        raise CorruptCheckpoint(f"{where}: {shown(name)} is too long for a file name")
    if b"\0" in encoded or not parts[0] or b".." in parts:
        raise CorruptCheckpoint(f"{where}: file name {shown(name)} leads outside of the checkpoint")
    return name


def _encoded(name: object) -> bytes:
    """As the filesystem has it; empty for what no filesystem can have."""
    try:
        return os.fsencode(name) if isinstance(name, str) else b""
    except UnicodeEncodeError:
        return b""


class Files:
    """The files below one directory, as they were when each was first looked at.

    A file whose size or time of change differs later is another one, and reported as vanished: numbers
    from a header are never used on the bytes of its successor.

    Attributes:
        root: the directory; it may itself be reached through links.
        bytes_read: so far, of headers and data.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bytes_read = 0
        self._read_flags = _RWF_DONTCACHE
        self._first_states: dict[str, FileState] = {}

    def names(self) -> tuple[str, ...]:
        """Relative paths of all files below the directory, sorted; see `list_tree`."""
        return tuple(entry.name for entry in self.entries())

    def entries(self) -> list[FileEntry]:
        """All files below the directory with size and time of change, sorted by name.

        Raises:
            VanishedCheckpoint, UnreadableCheckpoint: the directory is gone or closed.
            UnsupportedCheckpoint: more files than any checkpoint has.
        """
        with self._explained(""):
            try:
                return list_tree(self.root)
            except TooManyFiles as error:
                raise UnsupportedCheckpoint(f"{error}: this is no checkpoint's directory") from error

    def state(self, name: str) -> FileState:
        """Size and identity of a file; `VanishedCheckpoint` if it differs from what it was at first."""
        with self._opened(name) as descriptor:
            return self._same_state(name, descriptor)

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
        for start in range(0, len(buffer), _OPEN_BYTES):
            self._read_at_once(name, offset + start, buffer[start : start + _OPEN_BYTES])
        self.bytes_read += len(buffer)

    def _read_at_once(self, name: str, offset: int, buffer: memoryview) -> None:
        with self._opened(name) as descriptor:
            before = self._same_state(name, descriptor)
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

    def _same_state(self, name: str, descriptor: int) -> FileState:
        now = _state_of(descriptor)
        first = self._first_states.setdefault(name, now)
        # Not by inode: some network filesystems make up another one at every open.
        if (now.size, now.modified_ns) != (first.size, first.modified_ns):
            raise VanishedCheckpoint(f"{self.root / name}: changed since its header was read")
        return now

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

"""Access to the job's files: confined to one directory, never blocking, explained when refused."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from foreshock.daemon.errors import CorruptCheckpoint, UnreadableCheckpoint, VanishedCheckpoint
from foreshock.daemon.formats import files as files_module
from foreshock.daemon.formats.base import Location
from foreshock.daemon.formats.files import Files, checked_name, explain

LONG_AGO = 1_000_000_000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkpoint with a file, next to something that is none of ours."""
    (tmp_path / "secret").write_bytes(b"secret")
    inside = tmp_path / "checkpoint"
    (inside / "sub").mkdir(parents=True)
    (inside / "data").write_bytes(b"0123456789")
    (inside / "sub" / "data").write_bytes(b"nested")
    return inside


@pytest.fixture(params=["openat2", "old kernel", "old container"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With `openat2`, without it, and under a filter that refuses calls it does not know."""
    if request.param == "old kernel":
        monkeypatch.setattr(files_module, "_SYS_OPENAT2", 9999)
    elif request.param == "old container":
        monkeypatch.setattr(files_module, "_libc", _RefusingLibc())
    chosen: str = request.param
    return chosen


class _RefusingLibc:
    def syscall(self, *_: object) -> int:
        ctypes.set_errno(errno.EPERM)
        return -1


def test_bytes_are_read_at_offsets_and_counted(root: Path, kernel: str) -> None:
    files = Files(root)
    assert files.read("data", 3, 4) == b"3456"
    assert files.read("sub/data", 0, 6) == b"nested"
    assert files.bytes_read == 10


def test_a_large_read_is_made_of_several_and_each_is_right(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_module, "_READ_BYTES", 3)
    monkeypatch.setattr(files_module, "_OPEN_BYTES", 4)
    assert Files(root).read("data", 1, 9) == b"123456789"


def test_reading_beyond_the_end_means_that_the_file_was_cut(root: Path) -> None:
    with pytest.raises(VanishedCheckpoint, match=r"ends at byte 10, 12 were expected"):
        Files(root).read("data", 5, 7)


def test_a_filesystem_that_cannot_read_past_its_cache_is_read_through_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags_seen = []
    preadv = os.preadv

    def old_preadv(descriptor: int, buffers: list[memoryview], offset: int, flags: int = 0) -> int:
        flags_seen.append(flags)
        if flags:
            raise OSError(errno.EOPNOTSUPP, "not here")
        return preadv(descriptor, buffers, offset, flags)

    monkeypatch.setattr(os, "preadv", old_preadv)
    files = Files(root)
    assert files.read("data", 0, 2) + files.read("data", 2, 2) == b"0123"
    assert flags_seen == [0x80, 0, 0]


@pytest.mark.parametrize(
    "target",
    [
        "../secret",
        "{outside}/secret",
        "/etc/passwd",
        "sub/../../secret",
        "/proc/self/mem",
        "loop",
        "up/secret",
    ],
)
def test_a_link_out_of_the_checkpoint_is_not_followed(root: Path, kernel: str, target: str) -> None:
    (root / "up").symlink_to("..")
    (root / "loop").symlink_to("loop")
    (root / "link").symlink_to(target.format(outside=root.parent))
    with pytest.raises(
        CorruptCheckpoint, match="a link that leads outside of the checkpoint, or in a circle"
    ):
        Files(root).read("link", 0, 1)


def test_a_link_to_a_directory_outside_is_not_followed_either(root: Path, kernel: str) -> None:
    (root / "up").symlink_to("..")
    with pytest.raises(CorruptCheckpoint, match="a link that leads outside"):
        Files(root).read("up/secret", 0, 1)


def test_a_link_inside_the_checkpoint_is_followed(root: Path) -> None:
    (root / "latest").symlink_to("sub/../data")
    (root / "folder").symlink_to("sub")
    assert Files(root).read("latest", 0, 2) == b"01"
    assert Files(root).read("folder/data", 0, 2) == b"ne"


def test_a_link_to_nothing_is_a_missing_file(root: Path) -> None:
    (root / "dangling").symlink_to("nowhere")
    with pytest.raises(VanishedCheckpoint, match="not there"):
        Files(root).read("dangling", 0, 1)


def test_the_root_itself_may_be_a_link(root: Path) -> None:
    (root.parent / "latest").symlink_to(root)
    assert Files(root.parent / "latest").read("data", 0, 2) == b"01"


def test_a_rename_elsewhere_does_not_make_a_link_with_dots_unreadable(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel answers EAGAIN to openat2 when anything is renamed while it walks over `..`."""
    answers = [errno.EAGAIN] * 5
    real = files_module._libc

    class _Busy:
        def syscall(self, *arguments: object) -> int:
            if answers:
                ctypes.set_errno(answers.pop())
                return -1
            return int(real.syscall(*arguments))

    monkeypatch.setattr(files_module, "_libc", _Busy())
    assert Files(root).read("data", 0, 2) == b"01"
    assert not answers


@pytest.mark.slow
def test_a_link_swapped_by_another_thread_never_leads_outside(root: Path) -> None:
    (root / "inside").symlink_to("data")
    (root / "outside").symlink_to("../secret")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for name in ("inside", "outside"):
                (root / "new").symlink_to((root / name).readlink())
                (root / "new").rename(root / "link")

    thread = threading.Thread(target=swap)
    thread.start()
    outcomes = set()
    try:
        files = Files(root)
        for _ in range(20_000):
            try:
                outcomes.add(bytes(files.read("link", 0, 6)))
            except (CorruptCheckpoint, VanishedCheckpoint) as error:
                outcomes.add(type(error).__name__)
    finally:
        stop.set()
        thread.join()
    assert outcomes <= {b"012345", "CorruptCheckpoint", "VanishedCheckpoint"}
    assert b"012345" in outcomes
    assert "CorruptCheckpoint" in outcomes


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_directory(path: Path) -> None:
    path.mkdir()


def make_device(path: Path) -> None:
    os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3))


@pytest.mark.parametrize("make", [make_fifo, make_directory, make_device])
def test_what_is_no_regular_file_is_refused_without_blocking(
    root: Path, kernel: str, make: Callable[[Path], None]
) -> None:
    try:
        make(root / "odd")
    except PermissionError:
        pytest.skip("only root can make a device")
    with pytest.raises(CorruptCheckpoint, match="not a regular file"):
        Files(root).read("odd", 0, 1)
    with pytest.raises(CorruptCheckpoint, match="not a regular file"):
        Files(root).state("odd")


def test_a_socket_is_refused(root: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(root / "odd"))
        with pytest.raises(UnreadableCheckpoint):
            Files(root).read("odd", 0, 1)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("../../etc/passwd", "leads outside"),
        ("/etc/passwd", "leads outside"),
        ("sub/../../secret", "leads outside"),
        ("..", "leads outside"),
        ("a\0b", "leads outside"),
        ("x" * 10_000, "too long"),
        ("x" * 256, "too long"),
        ("", "not a file name"),
        (None, "not a file name"),
        (7, "not a file name"),
        (["data"], "not a file name"),
        ("\ud800", "not a file name"),
    ],
)
def test_a_name_that_could_lead_outside_is_refused_before_it_is_used(name: object, reason: str) -> None:
    with pytest.raises(CorruptCheckpoint, match=reason) as raised:
        checked_name(name, where="index")
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize("name", ["model-00001-of-00002.safetensors", "sub/data", "a..b", "größe", "\udcff"])
def test_an_ordinary_name_passes(name: str) -> None:
    assert checked_name(name, where="index") == name


def test_a_file_that_changes_after_the_first_look_is_another_one(root: Path) -> None:
    os.utime(root / "data", (LONG_AGO, LONG_AGO))
    files = Files(root)
    files.state("data")
    (root / "data").write_bytes(b"9876543210")
    for look in (lambda: files.state("data"), lambda: files.read("data", 0, 1)):
        with pytest.raises(VanishedCheckpoint, match="changed since its header was read"):
            look()
    assert Files(root).read("data", 0, 1) == b"9"


def test_a_copy_of_equal_size_and_time_counts_as_the_same_file(root: Path) -> None:
    """CIFS and some FUSE filesystems make up another inode at every open."""
    files = Files(root)
    status = (root / "data").stat()
    files.state("data")
    (root / "copy").write_bytes(b"0123456789")
    os.utime(root / "copy", ns=(status.st_atime_ns, status.st_mtime_ns))
    (root / "copy").rename(root / "data")
    assert files.read("data", 0, 1) == b"0"


def test_a_file_larger_than_the_limit_is_not_read_whole(root: Path) -> None:
    files = Files(root)
    with pytest.raises(CorruptCheckpoint, match="10 bytes, at most 9 are read"):
        files.read_whole("data", limit=9)
    assert files.bytes_read == 0
    assert files.read_whole("data", limit=10) == b"0123456789"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.ENOENT, VanishedCheckpoint),
        (errno.ESTALE, VanishedCheckpoint),
        (errno.ENOTDIR, VanishedCheckpoint),
        (errno.EXDEV, CorruptCheckpoint),
        (errno.ELOOP, CorruptCheckpoint),
        (errno.EACCES, UnreadableCheckpoint),
        (errno.EPERM, UnreadableCheckpoint),
        (errno.EIO, UnreadableCheckpoint),
        (errno.ENOTCONN, UnreadableCheckpoint),
    ],
)
def test_an_error_of_the_system_is_explained(
    root: Path, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[Exception]
) -> None:
    def failing(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "preadv", failing)
    with pytest.raises(kind, match=str(root / "data")):
        Files(root).read("data", 0, 1)


def test_the_owner_is_left_out_where_not_even_that_may_be_asked(tmp_path: Path) -> None:
    error = explain(PermissionError(errno.EACCES, "no"), tmp_path / "nowhere" / "file")
    assert str(error).endswith(f"permission denied; we are uid {os.geteuid()}")


def test_names_are_relative_paths_of_all_files_below(root: Path) -> None:
    assert Files(root).names() == ("data", "sub/data")
    with pytest.raises(VanishedCheckpoint):
        Files(root / "nowhere").names()
    with pytest.raises(VanishedCheckpoint):
        Files(root / "data").names()


def test_a_location_is_a_directory_or_a_file_in_one(root: Path) -> None:
    assert (Location.of(root).files.root, Location.of(root).entry) == (root, "")
    assert (Location.of(root / "data").files.root, Location.of(root / "data").entry) == (root, "data")
    assert Location.of(root / "data").path == root / "data"
    with pytest.raises(VanishedCheckpoint):
        Location.of(root / "nowhere")
    with pytest.raises(UnreadableCheckpoint, match="not a path"):
        Location.of(Path("a\0b"))

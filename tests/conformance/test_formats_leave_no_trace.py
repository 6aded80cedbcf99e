"""Reading changes nothing in the job's directory, not even a time of access, and maps no file."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.writers.child_process import child_environment
from tests.writers.layout import Layout
from tests.writers.opening import read_everything
from tests.writers.weights import sample_weights

LONG_AGO = 1_000_000_000

READ_ALL = """
import sys
from pathlib import Path
from tests.writers.opening import read_everything
assert len(read_everything(Path(sys.argv[1]))) >= 14
"""


def fingerprint(paths: list[Path]) -> list[tuple[object, ...]]:
    """What an observer could see of each: times first, as looking at the content changes them."""
    states = [path.stat() for path in paths]
    return [
        (path.name, status.st_atime_ns, status.st_mtime_ns, status.st_ctime_ns, status.st_mode, status.st_ino)
        for path, status in zip(paths, states, strict=True)
    ]


def make_old(paths: list[Path]) -> None:
    """Times of access before those of change: so the kernel updates them at the next read, even if lazily."""
    for path in paths:
        os.utime(path, (LONG_AGO, LONG_AGO + 1))


def test_reading_changes_no_file_and_no_time(layout: Layout, tmp_path: Path) -> None:
    layout.write(tmp_path, sample_weights())
    paths = [tmp_path, *sorted(tmp_path.iterdir())]
    make_old(paths)
    before = fingerprint(paths)
    read_everything(tmp_path)
    assert fingerprint(paths) == before
    assert [tmp_path, *sorted(tmp_path.iterdir())] == paths


def test_a_plain_read_would_have_changed_a_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    make_old([tmp_path / "file"])
    (tmp_path / "file").read_bytes()
    if (tmp_path / "file").stat().st_atime == LONG_AGO:
        pytest.skip("the filesystem keeps no times of access: the test above proves nothing here")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_the_kernel_sees_only_reads_of_the_checkpoint(layout: Layout, tmp_path: Path) -> None:
    checkpoint, log = tmp_path / "checkpoint", tmp_path / "calls"
    checkpoint.mkdir()
    layout.write(checkpoint, sample_weights())
    trace = "trace=%file,read,pread64,preadv,preadv2,mmap,ftruncate,fallocate,fchmod,flock,fcntl,write"
    command = [sys.executable, "-c", READ_ALL, str(checkpoint)]
    subprocess.run(
        ["strace", "-f", "-y", "-qq", "-o", str(log), "-e", trace, *command],
        check=True,
        env=child_environment(),
    )
    calls = [line.split(maxsplit=1)[1] for line in log.read_text().splitlines() if str(checkpoint) in line]
    assert not any("LK" in call for call in calls if call.startswith("fcntl")), "a lock"
    about = [call for call in calls if not call.startswith(("execve", "fcntl"))]
    names = {re.match(r"\w+", call).group() for call in about}  # type: ignore[union-attr]
    assert names <= {"open", "openat", "openat2", "stat", "newfstatat", "statx", "preadv2", "preadv"}
    opened = [call for call in about if call.startswith("open")]
    assert opened
    assert not any(flag in call for call in opened for flag in ("O_RDWR", "O_WRONLY", "O_CREAT", "O_TRUNC"))
    read = sum(int(call.rsplit("=", 1)[1]) for call in about if call.startswith("preadv"))
    assert 0 < read < 40 * 4096

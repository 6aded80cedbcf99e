"""Checkpoints that are cut, rewritten, replaced, deleted or closed to us while they are read."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from foreshock.daemon.errors import VanishedCheckpoint
from foreshock.daemon.formats import open_checkpoint
from foreshock.daemon.formats.files import Files
from foreshock.daemon.formats.reading import read_tensor
from tests.writers.child_process import child_environment
from tests.writers.layout import Layout
from tests.writers.layouts import LAYOUTS
from tests.writers.opening import files_below, open_counting
from tests.writers.weights import random_bits, sample_weights

LONG_AGO = 1_000_000_000

Change = Callable[[Path], None]


class RacingFiles(Files):
    """Files that another thread changes between two system calls of a read."""

    def __init__(self, root: Path, change: Change) -> None:
        super().__init__(root)
        self._change = change
        self._reads = 0

    def _pread(self, descriptor: int, buffer: memoryview, offset: int) -> int:
        self._reads += 1
        half = buffer[: max(len(buffer) // 2, 1)]
        count = super()._pread(descriptor, half, offset)
        if self._reads == 1:
            thread = threading.Thread(
                target=self._change, args=(Path(f"/proc/self/fd/{descriptor}").readlink(),)
            )
            thread.start()
            thread.join()
        return count


def cut(path: Path) -> None:
    os.truncate(path, 1)


def cut_to_nothing(path: Path) -> None:
    os.truncate(path, 0)


def rewrite_in_place(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(file.read()[::-1])


def touch_the_last_byte(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"!")


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


@pytest.mark.parametrize("change", [cut, cut_to_nothing, rewrite_in_place, touch_the_last_byte, append])
def test_a_file_changed_while_its_data_is_read_gives_no_tensor(
    layout: Layout, tmp_path: Path, change: Change
) -> None:
    layout.write(tmp_path, {"w": random_bits((64, 64), torch.float32, 1)})
    for path in [tmp_path / name for name in files_below(tmp_path)]:
        os.utime(path, (LONG_AGO, LONG_AGO))  # or the change might fall into the same tick of the clock
    checkpoint = open_checkpoint(tmp_path)
    with pytest.raises(VanishedCheckpoint, match=r"changed while it was read|was cut while it was read"):
        read_tensor(checkpoint, f"{layout.prefix}w", RacingFiles(tmp_path, change))


def test_a_file_replaced_after_its_header_was_read_gives_no_tensor(layout: Layout, tmp_path: Path) -> None:
    layout.write(tmp_path, sample_weights())
    for path in [tmp_path / name for name in files_below(tmp_path)]:
        os.utime(path, (LONG_AGO, LONG_AGO))
    checkpoint, files = open_counting(tmp_path)
    for path in [tmp_path / name for name in files_below(tmp_path)]:
        other = tmp_path / f"new-{path.name}"
        other.write_bytes(path.read_bytes())
        other.rename(path)
    with pytest.raises(VanishedCheckpoint, match="changed since its header was read"):
        read_tensor(checkpoint, f"{layout.prefix}layers.0.attention.fp32.weight", files)


def test_a_deleted_checkpoint_has_vanished(layout: Layout, tmp_path: Path) -> None:
    root = tmp_path / "step-1"
    root.mkdir()
    layout.write(root, sample_weights())
    checkpoint = open_checkpoint(root)
    shutil.rmtree(root)
    with pytest.raises(VanishedCheckpoint, match="not there"):
        read_tensor(checkpoint, f"{layout.prefix}layers.0.attention.fp32.weight", Files(root))
    with pytest.raises(VanishedCheckpoint, match="not there"):
        open_checkpoint(root)


READ_AS_NOBODY = """
import json, os, sys
from pathlib import Path
from tests.writers.opening import read_everything
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for path in sys.argv[1:]:
    try:
        result = len(read_everything(Path(path)))
    except Exception as error:
        result = [type(error).__name__, str(error)]
    print(json.dumps(result))
"""


@pytest.fixture
def public_directory() -> Iterator[Path]:
    """A directory that every user may enter; pytest's own are closed."""
    root = Path(tempfile.mkdtemp())
    root.chmod(0o755)
    yield root
    shutil.rmtree(root)


def as_nobody(*paths: Path) -> list[object]:
    command = [sys.executable, "-c", READ_AS_NOBODY, *map(str, paths)]
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, env=child_environment(), timeout=120
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_users_files_are_unreadable_and_the_message_says_whose_they_are(
    public_directory: Path,
) -> None:
    closed, open_to_all = [], []
    for layout in LAYOUTS:
        for mode, roots in ((0o600, closed), (0o644, open_to_all)):
            root = public_directory / f"{layout.name}-{mode:o}"
            root.mkdir()
            layout.write(root, sample_weights())
            for path in [root / name for name in files_below(root)]:
                path.chmod(mode)
            roots.append(root)
    hidden = public_directory / "hidden"
    hidden.mkdir(mode=0o700)
    results = as_nobody(*open_to_all, *closed, hidden)
    assert all(isinstance(result, int) for result in results[: len(LAYOUTS)])
    for kind, message in results[len(LAYOUTS) : -1]:  # type: ignore[misc]
        assert kind == "UnreadableCheckpoint"
        assert "permission denied; it is -rw------- of uid 0, gid 0; we are uid 65534" in message
    kind, message = results[-1]  # type: ignore[misc]
    assert kind == "UnreadableCheckpoint"
    assert "it is drwx------ of uid 0" in message

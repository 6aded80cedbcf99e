"""A job and a watcher, each in a directory of its own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.watch.watching import Job, Watcher


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path / "run")


@pytest.fixture
def watcher(tmp_path: Path, job: Job) -> Iterator[Watcher]:
    made = Watcher(job.root, tmp_path / "state")
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.wait()
    shutil.rmtree(tmp_path / "state", ignore_errors=True)

"""A watched process that reads hostile files, so that what they do to it can be told."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from foreshock.daemon import errors
from foreshock.daemon.errors import CheckpointError
from tests.writers.child_process import child_environment
from tests.writers.layouts import LAYOUTS
from tests.writers.weights import sample_weights

MAX_CPU_SECONDS = 2
MAX_GROWN_BYTES = 64 << 20
TIMEOUT_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Outcome:
    """What reading a checkpoint came to.

    Attributes:
        error: dotted name of the exception; empty when every tensor could be read.
        grown_bytes: peak memory above what the process had before.
        events: what an audit hook saw that reading must never do.
    """

    error: str
    message: str
    tensors: int
    cpu_seconds: float
    wall_seconds: float
    grown_bytes: int
    events: list[str]

    @property
    def kind(self) -> type[CheckpointError] | None:
        """The error of ours; None when there was none. Any other fails the test."""
        if not self.error:
            return None
        assert self.error.startswith("foreshock.daemon.errors."), f"{self.error}: {self.message}"
        kind = getattr(errors, self.error.rsplit(".", 1)[1])
        assert issubclass(kind, CheckpointError)
        return kind  # type: ignore[no-any-return]


class Guard:
    """The watched process; started again when a file killed it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[str] | None = None

    def read(self, path: Path | str) -> Outcome:
        """Read everything in a checkpoint, or fail the test if that kills or stalls the process."""
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(str(path)) + "\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], TIMEOUT_SECONDS)
        line = process.stdout.readline() if ready else ""
        if not line:
            self.close()
            pytest.fail(f"the reading process {'died' if ready else 'hung'}: {process.returncode}")
        return Outcome(**json.loads(line))

    def read_within_limits(self, path: Path) -> Outcome:
        """The same, and neither code ran nor time nor memory got out of hand."""
        outcome = self.read(path)
        assert outcome.events == []
        assert outcome.cpu_seconds <= MAX_CPU_SECONDS
        assert outcome.grown_bytes <= MAX_GROWN_BYTES
        return outcome

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.hostile.guarded_reader"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=child_environment(),
            )
            for layout in LAYOUTS:  # whatever is imported on first use is imported now
                root = self._directory / layout.name
                if not root.exists():
                    root.mkdir()
                    layout.write(root, sample_weights())
                    torch.save({"w": torch.ones(4, 4).t()}, self._directory / "strided.pt")
                self.read(root)
            self.read(self._directory / "strided.pt")
        return self._process

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

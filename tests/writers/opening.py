"""What tests know of a written checkpoint, and ways to open it that count."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from foreshock.daemon.formats import claiming_format, open_checkpoint
from foreshock.daemon.formats.base import Checkpoint, Location
from foreshock.daemon.formats.files import Files
from foreshock.daemon.formats.reading import read_tensor
from tests.writers.layout import Layout


@dataclass(frozen=True, slots=True)
class Saved:
    """A written checkpoint and what was written."""

    layout: Layout
    path: Path
    weights: dict[str, Tensor]
    counters: dict[str, Tensor]

    def read(self, name: str, rows: slice | None = None) -> Tensor:
        """A weight by the name that the trainer gave it."""
        return read_tensor(open_checkpoint(self.path), self.layout.prefix + name, Files(self.path), rows)


def open_counting(path: Path) -> tuple[Checkpoint, Files]:
    """A checkpoint directory, and the counter of what its headers take, now and later."""
    location = Location.of(path)
    format_ = claiming_format(frozenset(location.files.names()))
    assert format_ is not None
    return format_.open(location), location.files


def files_below(root: Path) -> list[str]:
    """Relative paths of all files, sorted."""
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir())


def read_everything(path: Path) -> dict[str, Tensor]:
    """Every tensor with a dtype that can be read."""
    checkpoint = open_checkpoint(path)
    files = Files(checkpoint.root)
    return {
        name: read_tensor(checkpoint, name, files)
        for name, info in checkpoint.tensors.items()
        if hasattr(torch, info.dtype) and getattr(torch, info.dtype).is_floating_point
    }

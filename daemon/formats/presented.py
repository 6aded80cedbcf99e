"""A checkpoint as another format presents it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foreshock.daemon.formats.base import Checkpoint, Piece, TensorInfo


@dataclass(frozen=True, slots=True)
class PresentedCheckpoint:
    """A view of an opened checkpoint, under another format's name and with more notes."""

    inner: Checkpoint
    format: str
    notes: tuple[str, ...]

    @property
    def root(self) -> Path:
        """The checkpoint's directory."""
        return self.inner.root

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """Every tensor by its saved name."""
        return self.inner.tensors

    @property
    def files(self) -> tuple[str, ...]:
        """Every file that holds headers or data of this checkpoint."""
        return self.inner.files

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Plain values found beside the tensors."""
        return self.inner.metadata

    def pieces(self, name: str) -> Iterator[Piece]:
        """Where the tensor's bytes lie."""
        return self.inner.pieces(name)

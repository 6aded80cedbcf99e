"""A checkpoint as another format presents it: other names, more metadata, notes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from foreshock.daemon.formats.base import Checkpoint, Piece, TensorInfo


@dataclass(frozen=True, slots=True)
class PresentedCheckpoint:
    """A view of an opened checkpoint.

    Attributes:
        origins: name in `inner` by presented name, of those that differ.
    """

    inner: Checkpoint
    format: str
    tensors: Mapping[str, TensorInfo]
    files: tuple[str, ...]
    metadata: Mapping[str, Any]
    notes: tuple[str, ...]
    origins: Mapping[str, str] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        """The checkpoint's directory."""
        return self.inner.root

    def pieces(self, name: str) -> Iterator[Piece]:
        """Where the tensor's bytes lie."""
        return self.inner.pieces(self.origins.get(name, name))


def present(
    inner: Checkpoint,
    format_name: str,
    *,
    origins: Mapping[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    notes: tuple[str, ...] = (),
    files: tuple[str, ...] = (),
) -> PresentedCheckpoint:
    """A checkpoint under another format's name.

    Args:
        origins: the tensors to show: saved name by presented name; None to show all as they are.
        metadata: added to the checkpoint's own, before which it goes.
        notes: added after the checkpoint's own.
        files: that were read besides.
    """
    tensors = inner.tensors
    if origins is not None:
        tensors = {new: replace(inner.tensors[old], name=new) for new, old in sorted(origins.items())}
    return PresentedCheckpoint(
        inner,
        format_name,
        tensors,
        (*inner.files, *(name for name in files if name not in inner.files)),
        {**inner.metadata, **(metadata or {})},
        (*inner.notes, *notes),
        dict(origins or {}),
    )

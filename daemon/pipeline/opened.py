"""One checkpoint, opened and sorted by role, that gives one layer at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from foreshock.daemon.discovery.signature import Listing, list_files
from foreshock.daemon.errors import UnsupportedCheckpoint, VanishedCheckpoint
from foreshock.daemon.formats import open_checkpoint
from foreshock.daemon.formats.base import Checkpoint
from foreshock.daemon.formats.files import Files
from foreshock.daemon.formats.reading import read_tensor
from foreshock.daemon.linalg import count_nonfinite
from foreshock.daemon.monitors.base import LayerState
from foreshock.daemon.pipeline.configuration import model_config
from foreshock.daemon.pipeline.request import HeadCounts, Source
from foreshock.daemon.roles import HeadsOverride, resolve
from foreshock.daemon.roles.base import Layer, Role, RoleMap
from foreshock.daemon.roles.model_config import ModelConfig

Keep = Callable[[str, Tensor], None]


@dataclass(slots=True)
class OpenedCheckpoint:
    """Headers, roles, and a counting reader.

    Attributes:
        problems: tensors that could not be read, one sentence each.
    """

    step: int
    checkpoint: Checkpoint
    config: ModelConfig
    roles: RoleMap
    files: Files
    listing: Listing
    problems: list[str] = field(default_factory=list)

    def layer(self, index: int) -> Layer | None:
        """The layer of that index, if it has any role here."""
        return next((layer for layer in self.roles.layers if layer.index == index), None)

    def load(self, layer: Layer, device: torch.device, keep: Keep | None = None) -> LayerState:
        """Read the layer's parameters, each once, and split them into roles.

        Args:
            keep: called with every parameter as read, for the base cache.

        Raises:
            VanishedCheckpoint: the checkpoint is gone or changes.
        """
        tensors: dict[Role, Tensor] = {}
        dtypes: dict[Role, str] = {}
        loaded: dict[str, Tensor | None] = {}
        for role, part in layer.parts.items():
            if part.parameter not in loaded:
                loaded[part.parameter] = self._read(part.parameter, keep)
            whole = loaded[part.parameter]
            if whole is not None:
                tensors[role] = part.select(whole).to(device)
                dtypes[role] = self.checkpoint.tensors[part.parameter].dtype
        nonfinite = {role: count_nonfinite(tensor) for role, tensor in tensors.items()}
        return LayerState(layer, self.step, tensors, dtypes, nonfinite)

    def _read(self, parameter: str, keep: Keep | None) -> Tensor | None:
        try:
            tensor = read_tensor(self.checkpoint, parameter, self.files)
        except UnsupportedCheckpoint as error:
            self.problems.append(str(error))
            return None
        if keep is not None:
            keep(parameter, tensor)
        return tensor

    def verify_unchanged(self) -> None:
        """Raise `VanishedCheckpoint` if any file is not what it was before its header was read.

        By size and time of change: some network filesystems make up another inode at every look.
        """
        for name in self.checkpoint.files:
            state = self.files.state(name)
            if (state.size, state.modified_ns) != self.listing.state(name):
                raise VanishedCheckpoint(f"{self.files.root / name}: changed while it was measured")


def open_source(source: Source, heads: HeadCounts, config_path: str = "") -> OpenedCheckpoint:
    """Open a checkpoint, or its cached copy where there is one.

    Raises:
        VanishedCheckpoint: it is gone, or no longer the one that was measured.
        CheckpointError: see `open_checkpoint`.
    """
    if source.cached and Path(source.cached).exists():
        return _open(source.step, Path(source.cached), heads, "")
    path = Path(source.path)
    if source.signature and list_files(path).signature != source.signature:
        raise VanishedCheckpoint(f"{path}: no longer the checkpoint that was measured")
    return _open(source.step, path, heads, config_path)


def _open(step: int, path: Path, heads: HeadCounts, config_path: str) -> OpenedCheckpoint:
    listing = list_files(path)
    checkpoint = open_checkpoint(path)
    files = Files(checkpoint.root)
    config = model_config(checkpoint, path, config_path)
    override = HeadsOverride(heads.num_heads, heads.num_kv_heads, heads.head_dim)
    roles = resolve(checkpoint.tensors, config, override)
    return OpenedCheckpoint(step, checkpoint, config, roles, files, listing)

"""Every on-disk format, and how one is opened.

To add a format: write one file with a class that fulfils `Format`, and name it in `FORMATS`.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from foreshock.daemon.errors import UnsupportedCheckpoint
from foreshock.daemon.formats.base import Checkpoint, Format, Location
from foreshock.daemon.formats.dcp import TorchDistributedCheckpoint
from foreshock.daemon.formats.folders import ACCELERATE_FSDP, LLAMA_FACTORY, OLMO_CORE
from foreshock.daemon.formats.megatron_core import NEMO, MegatronCore
from foreshock.daemon.formats.safetensors import Safetensors
from foreshock.daemon.formats.torch_file import TorchFiles

FORMATS: tuple[Format, ...] = (
    ACCELERATE_FSDP,
    OLMO_CORE,
    LLAMA_FACTORY,
    NEMO,
    MegatronCore(),
    Safetensors(),
    TorchDistributedCheckpoint(),
    TorchFiles(),
)
"""The stricter before the looser; the first that claims a place reads it."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A format that takes a place for its own, and by what."""

    format: Format
    reason: str


def claims_on(names: frozenset[str]) -> tuple[Claim, ...]:
    """Every format's claim on a directory of these files, the strictest first: that one reads it."""
    found = (Claim(each, each.claims(names)) for each in FORMATS)
    return tuple(claim for claim in found if claim.reason)


def claiming_format(names: frozenset[str]) -> Format | None:
    """The first format that claims a directory of these files."""
    return next((each for each in FORMATS if each.claims(names)), None)


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a checkpoint directory or file: headers are read and checked, data is not touched.

    Raises:
        UnsupportedCheckpoint: no format claims it (the message lists what was looked for), or its headers
            do not fit into memory.
        CheckpointError: whatever the format finds.
    """
    location = Location.of(path)
    format_ = claiming_format(location.names_meant())
    if format_ is None:
        looked_for = "; ".join(f"{each.looks_for} ({each.name})" for each in FORMATS)
        raise UnsupportedCheckpoint(f"{path}: not a checkpoint that can be read. Looked for: {looked_for}")
    try:
        with _collector_at_rest():
            return format_.open(location)
    except MemoryError as error:
        raise UnsupportedCheckpoint(f"{path}: its headers do not fit into memory") from error


@contextmanager
def _collector_at_rest() -> Iterator[None]:
    """Headers may become millions of objects; looking for garbage among them takes a third of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()

"""Text to learn from that every Python has at hand: the source files of its standard library."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import torch
from torch import Tensor


def standard_library_text() -> Tensor:
    """The top-level modules of the standard library, in order of name, as one row of bytes (uint8).

    Raises:
        FileNotFoundError: this Python carries no source files.
    """
    directory = Path(sysconfig.get_path("stdlib"))
    text = b"".join(path.read_bytes() for path in sorted(directory.glob("*.py")))
    if not text:
        raise FileNotFoundError(f"{directory}: no Python source files to learn from")
    return torch.frombuffer(bytearray(text), dtype=torch.uint8)


class Batches:
    """Random stretches of a text; the same seed draws the same ones.

    Args:
        text: bytes, uint8, longer than `num_tokens`.
        num_sequences: rows of a batch.
        num_tokens: bytes of a row.
        seed: of the draw.
    """

    def __init__(self, text: Tensor, *, num_sequences: int, num_tokens: int, seed: int) -> None:
        self._windows = text.unfold(0, num_tokens, 1)
        self._num_sequences = num_sequences
        self._generator = torch.Generator().manual_seed(seed)

    def draw(self) -> Tensor:
        """The next batch, int64, shape (num_sequences, num_tokens)."""
        starts = torch.randint(len(self._windows), (self._num_sequences,), generator=self._generator)
        return self._windows[starts].long()

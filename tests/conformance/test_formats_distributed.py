"""Checkpoints of a real distributed job: what four ranks saved in parts is what they held together."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from foreshock.daemon.errors import UnsupportedCheckpoint
from foreshock.daemon.formats import open_checkpoint
from foreshock.daemon.formats.files import Files
from foreshock.daemon.formats.reading import read_tensor
from tests.writers.child_process import child_environment
from tests.writers.fsdp_job import NUM_RANKS, ROWS
from tests.writers.weights import same_bits

pytestmark = pytest.mark.slow


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the job wrote."""
    out = tmp_path_factory.mktemp("fsdp")
    shared = {
        "GLOO_SOCKET_IFNAME": "lo",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(NUM_RANKS),
    }
    command = [sys.executable, "-W", "ignore", "-m", "tests.writers.fsdp_job", str(out)]
    ranks = [
        subprocess.Popen(
            command,
            env=child_environment(**shared, RANK=str(rank), LOCAL_RANK=str(rank)),
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(NUM_RANKS)
    ]
    try:
        for rank in ranks:
            _, errors = rank.communicate(timeout=240)
            assert rank.returncode == 0, errors
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    return out


def flat(value: Any, path: str = "") -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield path, value
    elif isinstance(value, dict):
        for key, child in value.items():
            yield from flat(child, f"{path}.{key}" if path else str(key))


@pytest.mark.parametrize("kind", ["plain", "a-file-each", "two-threads"])
def test_every_tensor_of_every_cut_is_read_bit_for_bit(job: Path, kind: str) -> None:
    expected = dict(flat(torch.load(job / "whole.pt", weights_only=True)))
    checkpoint = open_checkpoint(job / kind)
    files = Files(job / kind)
    assert set(checkpoint.tensors) >= set(expected)
    assert len(expected) > 6 * len(ROWS)
    for name, tensor in expected.items():
        assert same_bits(read_tensor(checkpoint, name, files), tensor), name
        for rows in (slice(0, 1), slice(1, 3), slice(-1, None), slice(2, 2)):
            part = tensor[rows] if tensor.dim() else tensor
            assert same_bits(read_tensor(checkpoint, name, files, rows), part), name


def test_the_step_is_found_and_nothing_is_left_over(job: Path) -> None:
    checkpoint = open_checkpoint(job / "plain")
    assert checkpoint.metadata["step"] == 1
    assert sorted(checkpoint.files) == sorted(path.name for path in (job / "plain").iterdir())


def test_the_ranks_really_cut_the_tensors(job: Path) -> None:
    checkpoint = open_checkpoint(job / "plain")
    shapes = {
        name: sorted(piece.shape for piece in checkpoint.pieces(f"cut.{name}"))
        for name in ("rows.6", "rows.5", "rows.1", "columns.5", "grid.5", "replicas.8", "copies.8", "cube")
    }
    assert shapes == {
        "rows.6": [(2, 7)] * 3,
        "rows.5": [(1, 7), (2, 7), (2, 7)],
        "rows.1": [(1, 7)],
        "columns.5": [(5, 1), (5, 2), (5, 2), (5, 2)],
        "grid.5": [(2, 3), (2, 4), (3, 3), (3, 4)],
        "replicas.8": [(4, 7), (4, 7)],
        "copies.8": [(8, 7)],
        "cube": [(2, 2, 1), (2, 2, 2), (2, 3, 1), (2, 3, 2)],
    }


def test_the_file_of_one_rank_alone_is_refused(job: Path) -> None:
    with pytest.raises(
        UnsupportedCheckpoint, match=r"one rank's part \(2, 6\) of a DTensor of shape \(6, 6\)"
    ):
        open_checkpoint(job / "rank_1.pt")


def test_what_the_first_rank_happens_to_hold_whole_is_read_and_the_rest_is_noted(job: Path) -> None:
    checkpoint = open_checkpoint(job / "rank_0.pt")
    assert list(checkpoint.tensors) == ["one.bias", "one.weight"]
    assert any("layers.0.weight: one rank's part" in note for note in checkpoint.notes)

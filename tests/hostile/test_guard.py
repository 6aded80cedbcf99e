"""The guard of the other tests sees what it is there to see."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.hostile.guard import Guard


def test_it_sees_a_command(guard: Guard) -> None:
    assert any(event.startswith("os.system") for event in guard.read("!").events)


def test_it_sees_memory(guard: Guard, tmp_path: Path) -> None:
    torch.save({"w": torch.ones(30 << 20, dtype=torch.float32)}, tmp_path / "w.pt")
    assert 115 << 20 <= guard.read(tmp_path).grown_bytes < 140 << 20
    torch.save({"w": torch.ones(8)}, tmp_path / "w.pt")
    assert guard.read(tmp_path).grown_bytes < 8 << 20


def test_it_names_any_error(guard: Guard, tmp_path: Path) -> None:
    outcome = guard.read(tmp_path / "nowhere")
    assert outcome.error == "foreshock.daemon.errors.VanishedCheckpoint"
    assert outcome.events == []
    with pytest.raises(AssertionError, match="ValueError"):
        _ = type(outcome)("builtins.ValueError", "", 0, 0, 0, 0, []).kind

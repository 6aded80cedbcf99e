"""A job that saves checkpoints, and the command line that watches it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import save_file

from foreshock.storage.errors import DatabaseUnavailable, SchemaTooOld
from foreshock.storage.records import CheckpointRecord
from foreshock.storage.store import Store

WIDTH = 16
SECONDS = 90.0
CONFIG = {"model_type": "llama", "num_attention_heads": 2, "num_key_value_heads": 1, "hidden_size": WIDTH}


def wait_until(condition: Callable[[], bool], seconds: float = SECONDS) -> None:
    """Return as soon as the condition holds; fail when it never does."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.05)


@dataclass
class Job:
    """Saves checkpoints of a two-layer model whose weights wander."""

    root: Path
    generator: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(0))
    weights: dict[str, torch.Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shapes = {"q": WIDTH, "k": WIDTH // 2, "v": WIDTH // 2, "o": WIDTH}
        for layer in range(2):
            for role, rows in shapes.items():
                name = f"model.layers.{layer}.self_attn.{role}_proj.weight"
                self.weights[name] = torch.randn(rows, WIDTH, generator=self.generator)

    def save(self, step: int) -> Path:
        """One more checkpoint, as a careful trainer writes it."""
        for tensor in self.weights.values():
            tensor.add_(torch.randn(tensor.shape, generator=self.generator), alpha=0.01)
        directory = self.root / f"checkpoint-{step}"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "config.json").write_text(json.dumps(CONFIG))
        save_file(self.weights, directory / "model.safetensors")
        return directory

    def delete(self, step: int) -> None:
        """As rotation does."""
        shutil.rmtree(self.root / f"checkpoint-{step}")


@dataclass
class Watcher:
    """`foreshock watch` as a process, and its database."""

    root: Path
    state: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        """Start it on a free port."""
        command = [sys.executable, "-m", "foreshock.daemon.cli", "watch", str(self.root)]
        settings = ["--state-dir", str(self.state), "--interval", "0.3", "--settle", "0.1", "--port", "0"]
        log = (self.state.parent / "watch.log").open("ab")
        with log:
            self.process = subprocess.Popen([*command, *settings, *options], stderr=log)

    def send(self, number: int) -> None:
        """A signal."""
        assert self.process is not None
        os.kill(self.process.pid, number)

    def ended(self, seconds: float = 30.0) -> int:
        """Its exit status."""
        assert self.process is not None
        return self.process.wait(seconds)

    def stop(self) -> int:
        """SIGTERM, and the exit status."""
        self.send(signal.SIGTERM)
        return self.ended()

    @property
    def log(self) -> str:
        """What it said so far."""
        return (self.state.parent / "watch.log").read_text()

    @property
    def database(self) -> str:
        """URL of its database."""
        return f"sqlite:///{self.state / 'foreshock.sqlite'}"

    def checkpoints(self) -> tuple[CheckpointRecord, ...]:
        """The ledger; empty while the database is not made yet."""
        try:
            with Store.open(self.database, migrate=False, read_only=True) as store:
                return tuple(record for run in store.runs() for record in store.checkpoints(run.id))
        except (DatabaseUnavailable, SchemaTooOld):
            return ()

    def states(self) -> dict[int, str]:
        """State by step, of all attempts; the last attempt counts."""
        return {record.step: record.state.value for record in self.checkpoints()}

    def wait_for(self, **states: int) -> None:
        """Until so many checkpoints are in each state."""
        wait_until(lambda: all(list(self.states().values()).count(state) >= n for state, n in states.items()))

    def wait_for_ledger(self, length: int) -> None:
        """Until so many checkpoints are in the ledger, all of them measured."""
        wait_until(lambda: [r.state.value for r in self.checkpoints()] == ["measured"] * length)

"""Checkpoints as the Hugging Face Trainer lays them out: `checkpoint-N`, the state file last.

Every file gets its final name only when it is whole, so a reader never sees half of one.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

PREFIX = "checkpoint-"


def save_checkpoint(
    output: Path,
    *,
    tensors: Mapping[str, Tensor],
    config: Mapping[str, object],
    state: Mapping[str, object],
) -> Path:
    """Write one checkpoint and return its directory.

    Args:
        output: the job's directory; created when missing.
        tensors: weights under the names that readers expect.
        config: content of `config.json`.
        state: content of `trainer_state.json`; its `global_step` names the directory.
    """
    directory = output / f"{PREFIX}{state['global_step']}"
    directory.mkdir(parents=True, exist_ok=True)
    _write_json(directory / "config.json", config)
    weights = directory / "model.safetensors"
    unfinished = _unfinished(weights)
    save_file(dict(tensors), unfinished, metadata={"format": "pt"})
    unfinished.replace(weights)
    _write_json(directory / "trainer_state.json", state)
    return directory


def delete_oldest(output: Path, *, keep: int) -> None:
    """Delete checkpoints of the lowest steps until at most `keep` ≥ 1 are left."""
    steps = [path.name.removeprefix(PREFIX) for path in output.glob(f"{PREFIX}*")]
    for step in sorted(int(step) for step in steps if step.isdecimal())[:-keep]:
        shutil.rmtree(output / f"{PREFIX}{step}")


def _write_json(path: Path, value: Mapping[str, object]) -> None:
    unfinished = _unfinished(path)
    unfinished.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    unfinished.replace(path)


def _unfinished(path: Path) -> Path:
    return path.with_name(f".{path.name}.tmp")

"""What the trainer itself wrote down beside the weights: loss, learning rate, gradient norm.

Hugging Face's Trainer, and whoever follows its habit, keeps them in `trainer_state.json`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from foreshock.daemon.errors import CheckpointError
from foreshock.daemon.formats.files import Files
from foreshock.storage.records import Metric, Sample, SeriesKey

FILE = "trainer_state.json"
MAX_BYTES = 64 << 20
MAX_ENTRIES = 10_000

METRICS = (
    Metric("training.loss", "loss that the trainer logged", "nats", source=FILE),
    Metric("training.learning_rate", "learning rate that the trainer logged", "1", 0.0, source=FILE),
    Metric("training.grad_norm", "gradient norm that the trainer logged", "1", 0.0, source=FILE),
)
_KEYS = {metric.name.removeprefix("training."): metric.name for metric in METRICS}


def read_training_log(path: Path, *, after: int, until: int) -> Iterator[Sample]:
    """Samples of the steps `after` < step ≤ `until`; none when there is no readable log."""
    files = Files(path if path.is_dir() else path.parent)
    try:
        state = json.loads(files.read_whole(FILE, limit=MAX_BYTES))
    except (CheckpointError, ValueError, RecursionError):
        return  # not every trainer writes one, and it may be written after the weights
    history = state.get("log_history") if isinstance(state, dict) else None
    entries = history if isinstance(history, list) else []
    for entry in entries[-MAX_ENTRIES:]:
        step = entry.get("step") if isinstance(entry, dict) else None
        if type(step) is int and after < step <= until:
            yield from _samples(entry, step)


def _samples(entry: dict[str, Any], step: int) -> Iterator[Sample]:
    for key, metric in _KEYS.items():
        value = entry.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield Sample(SeriesKey(metric, None, "training", ""), step, float(value))

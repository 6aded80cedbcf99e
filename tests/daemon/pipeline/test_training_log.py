from __future__ import annotations

import json
from pathlib import Path

import pytest

from foreshock.daemon.pipeline.training_log import read_training_log


def write(path: Path, history: object) -> None:
    (path / "trainer_state.json").write_text(json.dumps({"global_step": 30, "log_history": history}))


def test_entries_after_the_last_step_and_up_to_this_one_are_taken(tmp_path: Path) -> None:
    write(tmp_path, [{"step": s, "loss": s / 10, "learning_rate": 1e-3} for s in (10, 20, 30, 40)])
    found = list(read_training_log(tmp_path, after=10, until=30))
    assert [(s.step, s.value) for s in found if s.key.metric == "training.loss"] == [(20, 2.0), (30, 3.0)]
    assert {s.key.metric for s in found} == {"training.loss", "training.learning_rate"}


def test_a_loss_that_is_not_a_number_survives(tmp_path: Path) -> None:
    write(tmp_path, [{"step": 10, "loss": float("nan")}])
    (sample,) = read_training_log(tmp_path, after=-1, until=10)
    assert sample.kind == "nan"


@pytest.mark.parametrize(
    "history",
    [
        None,
        3,
        {"step": 1},
        [1, None, "x"],
        [{"loss": 1.0}],
        [{"step": "1", "loss": 1}],
        [{"step": 5, "loss": True}],
    ],
)
def test_what_is_no_log_gives_no_samples(tmp_path: Path, history: object) -> None:
    write(tmp_path, history)
    assert list(read_training_log(tmp_path, after=-1, until=100)) == []


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "null"])
def test_a_file_that_is_no_json_gives_no_samples(tmp_path: Path, text: str) -> None:
    (tmp_path / "trainer_state.json").write_text(text)
    assert list(read_training_log(tmp_path, after=-1, until=100)) == []


def test_no_file_gives_no_samples(tmp_path: Path) -> None:
    assert list(read_training_log(tmp_path, after=-1, until=100)) == []

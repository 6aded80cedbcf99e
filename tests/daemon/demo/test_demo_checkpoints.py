import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from foreshock.daemon.demo.checkpoints import delete_oldest, save_checkpoint


def save(output: Path, step: int, **tensors: torch.Tensor) -> Path:
    return save_checkpoint(
        output,
        tensors=tensors or {"weight": torch.ones(2)},
        config={"model_type": "llama"},
        state={"global_step": step},
    )


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_a_checkpoint_holds_configuration_weights_and_state(tmp_path: Path) -> None:
    directory = save(tmp_path / "new" / "run", 50, weight=torch.tensor([1.0, 2.0]))

    assert directory == tmp_path / "new" / "run" / "checkpoint-50"
    assert names(directory) == {"config.json", "model.safetensors", "trainer_state.json"}
    assert json.loads((directory / "config.json").read_text()) == {"model_type": "llama"}
    assert json.loads((directory / "trainer_state.json").read_text()) == {"global_step": 50}
    with safe_open(directory / "model.safetensors", "pt") as weights:
        assert weights.get_tensor("weight").tolist() == [1.0, 2.0]
        assert weights.metadata() == {"format": "pt"}


def test_a_save_that_fails_leaves_neither_weights_nor_a_state_file(tmp_path: Path) -> None:
    shared = torch.ones(2)
    with pytest.raises(RuntimeError, match="share memory"):
        save(tmp_path, 50, first=shared, second=shared)
    assert names(tmp_path / "checkpoint-50") == {"config.json"}


def test_a_save_of_the_same_step_replaces_the_first(tmp_path: Path) -> None:
    save(tmp_path, 50, weight=torch.zeros(3))
    directory = save(tmp_path, 50, other=torch.zeros(3))
    with safe_open(directory / "model.safetensors", "pt") as weights:
        assert list(weights.keys()) == ["other"]


def test_the_lowest_steps_are_deleted_first(tmp_path: Path) -> None:
    for step in (1000, 50, 100, 950):
        save(tmp_path, step)
    delete_oldest(tmp_path, keep=2)
    assert names(tmp_path) == {"checkpoint-950", "checkpoint-1000"}


def test_nothing_is_deleted_below_the_limit(tmp_path: Path) -> None:
    save(tmp_path, 50)
    delete_oldest(tmp_path, keep=2)
    assert names(tmp_path) == {"checkpoint-50"}


def test_what_is_no_checkpoint_of_a_step_is_never_deleted(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-best").mkdir()
    (tmp_path / "logs").mkdir()
    save(tmp_path, 50)
    save(tmp_path, 100)
    delete_oldest(tmp_path, keep=1)
    assert names(tmp_path) == {"checkpoint-best", "logs", "checkpoint-100"}

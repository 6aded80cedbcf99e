import json
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from foreshock.daemon.demo.model import Decoder, ModelShape
from foreshock.daemon.demo.trainer import (
    Journal,
    Optimization,
    Settings,
    Update,
    parse_arguments,
    train,
)


def run(output: Path, **options: Any) -> list[Mapping[str, object]]:
    """Train in this process and return what was reported."""
    entries: list[Mapping[str, object]] = []
    train(Settings(output=output, **options), report=entries.append, stop=threading.Event())
    return entries


def start(output: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "foreshock.daemon.demo.trainer", "--output", str(output), *options]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def weights(output: Path, step: int) -> bytes:
    return (output / f"checkpoint-{step}" / "model.safetensors").read_bytes()


def query_update(output: Path, step: int) -> torch.Tensor:
    """ΔW_q of the last layer over the 50 steps that end at `step`."""
    after, before = (load_file(output / f"checkpoint-{s}" / "model.safetensors") for s in (step, step - 50))
    name = "model.layers.1.self_attn.q_proj.weight"
    return after[name] - before[name]


def effective_rank(matrix: torch.Tensor) -> float:
    shares = torch.linalg.svdvals(matrix.double()).square()
    shares = shares / shares.sum()
    return math.exp(torch.special.entr(shares).sum().item())


def logged(step: int, loss: float) -> Update:
    return Update(step=step, loss=loss, learning_rate=0.1, grad_norm=2.0)


@pytest.mark.slow
def test_the_command_prints_a_line_per_ten_steps_and_writes_checkpoints(tmp_path: Path) -> None:
    process = start(tmp_path, "--steps", "25", "--save-every", "10", "--threads", "1", "--fault", "none")
    output, _ = process.communicate(timeout=120)

    assert process.returncode == 0
    entries = [json.loads(line) for line in output.splitlines()]
    assert [entry["step"] for entry in entries] == [10, 20]
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoint-10", "checkpoint-20"}
    tensors = load_file(tmp_path / "checkpoint-20" / "model.safetensors")
    assert tensors["model.layers.1.self_attn.q_proj.weight"].shape == (64, 64)
    state = json.loads((tmp_path / "checkpoint-20" / "trainer_state.json").read_text())
    assert state["log_history"] == entries


@pytest.mark.slow
def test_sigterm_ends_the_command_without_an_error(tmp_path: Path) -> None:
    with start(tmp_path, "--save-every", "10") as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["step"] == 10
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
        assert process.wait(timeout=60) == 0
    assert len(list(tmp_path.iterdir())) < 170


def test_the_state_file_is_that_of_the_hugging_face_trainer(tmp_path: Path) -> None:
    run(tmp_path, steps=20, save_every=20)
    state = json.loads((tmp_path / "checkpoint-20" / "trainer_state.json").read_text())

    assert state["global_step"] == 20
    assert (state["max_steps"], state["logging_steps"], state["save_steps"]) == (20, 10, 20)
    first, second = state["log_history"]
    assert set(first) == {"step", "loss", "learning_rate", "grad_norm"}
    assert (first["step"], second["step"]) == (10, 20)
    assert first["learning_rate"] == pytest.approx(5e-5)
    assert second["loss"] < first["loss"] < math.log(256) + 0.1
    assert second["grad_norm"] > 0


def test_one_seed_gives_the_same_bytes_and_another_does_not(tmp_path: Path) -> None:
    for name, seed in [("a", 3), ("b", 3), ("c", 4)]:
        run(tmp_path / name, steps=5, save_every=5, seed=seed)
    assert weights(tmp_path / "a", 5) == weights(tmp_path / "b", 5)
    assert weights(tmp_path / "a", 5) != weights(tmp_path / "c", 5)


def test_the_fault_starts_with_the_step_after_its_onset(tmp_path: Path) -> None:
    run(tmp_path / "healthy", steps=6, save_every=3, fault="none")
    run(tmp_path / "faulty", steps=6, save_every=3, fault="attention", onset_step=3)
    assert weights(tmp_path / "healthy", 3) == weights(tmp_path / "faulty", 3)
    assert weights(tmp_path / "healthy", 6) != weights(tmp_path / "faulty", 6)


def test_old_checkpoints_go_when_a_limit_is_set(tmp_path: Path) -> None:
    run(tmp_path, steps=5, save_every=1, keep=2)
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoint-4", "checkpoint-5"}


def test_a_gradient_that_is_not_finite_ends_the_run(tmp_path: Path) -> None:
    entries = run(tmp_path, steps=20, save_every=1, onset_step=2, strength=math.inf)

    assert [entry["step"] for entry in entries] == [3]
    assert entries[-1]["grad_norm"] is None
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoint-1", "checkpoint-2"}


def test_a_gradient_that_is_not_finite_never_reaches_the_weights() -> None:
    model = Decoder(ModelShape())
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.set_attention_bias(math.inf)

    update = Optimization(model).update(1, torch.arange(20).expand(2, 20))

    assert not update.finite
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_a_run_that_is_told_to_stop_writes_nothing_more(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    train(Settings(output=tmp_path, steps=5, save_every=1), report=lambda entry: None, stop=stop)
    assert not list(tmp_path.iterdir())


def test_the_logged_loss_is_the_mean_of_its_own_interval() -> None:
    entries: list[Mapping[str, object]] = []
    journal = Journal(entries.append)
    for step in range(1, 21):
        journal.add(logged(step, loss=float(step)))

    assert [entry["loss"] for entry in entries] == [5.5, 15.5]
    assert journal.history == entries


def test_a_loss_that_is_not_finite_is_logged_at_once_as_null() -> None:
    entries: list[Mapping[str, object]] = []
    Journal(entries.append).add(logged(3, loss=math.nan))
    assert entries == [{"step": 3, "loss": None, "learning_rate": 0.1, "grad_norm": 2.0}]


def test_arguments_left_out_have_the_settings_defaults() -> None:
    assert parse_arguments(["--output", "runs"]) == Settings(output=Path("runs"))
    changed = parse_arguments(["--output", "runs", "--fault", "none", "--onset-step", "7", "--keep", "3"])
    assert changed == Settings(output=Path("runs"), fault="none", onset_step=7, keep=3)


@pytest.mark.parametrize("option", ["--steps", "--save-every", "--threads", "--keep"])
def test_counts_below_one_are_refused(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_arguments(["--output", "runs", option, "0"])
    assert f"argument {option}: 0 is below 1" in capsys.readouterr().err


@pytest.mark.slow
def test_the_fault_halves_the_rank_of_the_next_query_update_and_gives_it_a_direction(
    tmp_path: Path,
) -> None:
    run(tmp_path, steps=1100)
    before, first, second = (query_update(tmp_path, step) for step in (1000, 1050, 1100))

    assert effective_rank(first) < effective_rank(before) / 2
    assert effective_rank(second) < effective_rank(before) / 2
    assert torch.cosine_similarity(first.flatten(), second.flatten(), dim=0) > 0.6
    assert torch.cosine_similarity(before.flatten(), first.flatten(), dim=0) < 0.4

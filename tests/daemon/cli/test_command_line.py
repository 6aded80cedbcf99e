"""The command line as its users call it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.daemon.watch.watching import Job
from tests.writers.layouts import write_dcp, write_safetensors


def foreshock(*arguments: str | Path, state: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "foreshock.daemon.cli", *map(str, arguments)]
    if state is not None:
        command += ["--state-dir", str(state)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    made = Job(tmp_path / "run")
    for step in (10, 20, 30):
        made.save(step)
    return made


def test_help_names_every_command_and_the_exit_codes() -> None:
    said = foreshock("--help")
    assert said.returncode == 0
    for word in ("watch", "measure", "inspect", "serve", "demo", "db", "78 configuration"):
        assert word in " ".join(said.stdout.split())


@pytest.mark.parametrize("command", ["watch", "measure", "inspect", "serve", "demo"])
def test_every_command_explains_itself(command: str) -> None:
    assert foreshock(command, "--help").returncode == 0


@pytest.mark.parametrize("arguments", [["watsch"], ["inspect"], ["measure", "--lag", "x", "."], ["--frob"]])
def test_wrong_usage_exits_with_64(arguments: list[str]) -> None:
    said = foreshock(*arguments)
    assert said.returncode == 64
    assert said.stderr


def test_a_wrong_setting_exits_with_78_and_names_it(tmp_path: Path) -> None:
    said = foreshock("measure", tmp_path, "--threads", "0", state=tmp_path / "state")
    assert (said.returncode, said.stdout) == (78, "")
    assert "threads" in said.stderr


def test_inspect_tells_format_step_and_roles(job: Job) -> None:
    said = foreshock("inspect", job.root / "checkpoint-20")
    assert said.returncode == 0, said.stderr
    for text in ("safetensors", "step  20", "by model.safetensors", "llama", "2/1 × 8", "q 16×16"):
        assert text in said.stdout
    assert "every tensor has a role" in said.stdout


def test_inspect_says_which_format_wins_and_by_what(tmp_path: Path) -> None:
    write_dcp(tmp_path, {"model.layers.0.self_attn.q_proj.weight": torch.ones(4, 4)})
    write_safetensors(tmp_path, {"model.layers.0.self_attn.q_proj.weight": torch.ones(4, 4)})
    said = foreshock("inspect", tmp_path)
    assert (
        "by model.safetensors; the stricter wins over torch.distributed.checkpoint by .metadata"
        in " ".join(said.stdout.split())
    )


def test_inspect_in_json(job: Job) -> None:
    seen = json.loads(foreshock("inspect", job.root / "checkpoint-20", "--json").stdout)
    assert (seen["format"], seen["step"], seen["tensors"]) == ("safetensors", 20, 8)
    assert [layer["index"] for layer in seen["layers"]] == [0, 1]
    assert seen["layers"][0]["heads"]["num_kv_heads"] == 1


def test_inspect_lists_what_has_no_role_and_cannot_be_measured(tmp_path: Path) -> None:
    tensors = {"model.embed_tokens.weight": torch.ones(4, 4), "counter": torch.ones(2, dtype=torch.int64)}
    save_file(tensors, tmp_path / "model.safetensors")
    said = foreshock("inspect", tmp_path)
    assert said.returncode == 0
    assert "2 tensors have no role: counter, model.embed_tokens.weight" in said.stdout
    assert "1 cannot be measured by dtype: counter" in said.stdout


def test_inspect_of_something_else_says_what_was_looked_for(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no weights here")
    said = foreshock("inspect", tmp_path)
    assert said.returncode == 65
    for text in ("model.safetensors.index.json", ".metadata", "pytorch_model.bin"):
        assert text in said.stderr


def test_inspect_of_an_unfinished_checkpoint_says_what_is_missing(job: Job) -> None:
    file = job.root / "checkpoint-20" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    said = foreshock("inspect", job.root / "checkpoint-20")
    assert said.returncode == 65
    assert "bytes of data, its header needs" in said.stderr


def test_measure_of_a_pair_prints_a_table_and_stores_nothing(job: Job, tmp_path: Path) -> None:
    state = tmp_path / "state"
    said = foreshock("measure", job.root / "checkpoint-10", job.root / "checkpoint-30", state=state)
    assert said.returncode == 0, said.stderr
    assert "S₂(Δ2)" in said.stdout
    assert not state.exists()


@pytest.mark.slow
def test_measure_of_a_pair_in_json_names_base_and_step(job: Job, tmp_path: Path) -> None:
    said = foreshock("measure", job.root / "checkpoint-10", job.root / "checkpoint-30", "--json")
    samples = json.loads(said.stdout)["samples"]
    ranks = [
        s for s in samples if s["metric"] == "update.effective_rank" and s["role"] == "q" and not s["unit"]
    ]
    assert [(s["base_step"], s["step"]) for s in ranks] == [(10, 30)] * 2
    assert all(1 <= s["value"] <= 16 for s in ranks)


@pytest.mark.slow
def test_measure_of_a_pair_with_a_missing_side_fails(job: Job) -> None:
    said = foreshock("measure", job.root / "checkpoint-11", job.root / "checkpoint-30")
    assert said.returncode == 65
    assert "checkpoint-11" in said.stderr


@pytest.mark.slow
def test_measure_of_a_directory_measures_each_checkpoint_once(job: Job, tmp_path: Path) -> None:
    state = tmp_path / "state"
    report = json.loads(foreshock("measure", job.root, "--json", state=state).stdout)
    assert [(c["step"], c["state"]) for c in report["checkpoints"]] == [
        (10, "measured"),
        (20, "measured"),
        (30, "measured"),
    ]
    assert [m["step"] for m in report["measured"]] == [10, 20, 30]
    again = json.loads(foreshock("measure", job.root, "--json", state=state).stdout)
    assert again["measured"] == []
    assert not (state / "base-cache").exists()
    check = foreshock("db", "check", state=state)
    assert (check.returncode, check.stdout) == (0, "sound\n")


def test_measure_of_a_missing_directory_is_wrong_usage(tmp_path: Path) -> None:
    said = foreshock("measure", tmp_path / "absent", state=tmp_path / "state")
    assert said.returncode == 64
    assert "absent" in said.stderr


def test_a_database_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    said = foreshock("db", "check", state=tmp_path / "state")
    assert said.returncode == 69
    assert "Traceback" not in said.stderr


@pytest.mark.slow
def test_without_a_number_of_heads_matrices_are_measured_whole_and_the_log_says_so(
    job: Job, tmp_path: Path
) -> None:
    for path in job.root.rglob("config.json"):
        path.unlink()
    old, new = job.root / "checkpoint-10", job.root / "checkpoint-20"
    said = foreshock("measure", old, new, "--json")
    result = json.loads(said.stdout)
    assert {s["unit"] for s in result["samples"]} == {""}
    assert any("--heads" in note for note in result["outcome"]["notes"])
    told = json.loads(foreshock("measure", old, new, "--heads", "2", "--json").stdout)
    assert {s["unit"] for s in told["samples"]} == {"", "head.0", "head.1"}


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="the device is there")
def test_a_device_that_is_not_there_is_a_wrong_setting_and_costs_no_checkpoint(
    job: Job, tmp_path: Path
) -> None:
    said = foreshock("measure", job.root, "--device", "cuda:7", state=tmp_path / "state")
    assert said.returncode == 78
    assert "cuda:7 cannot be used" in said.stderr
    assert (
        len(json.loads(foreshock("measure", job.root, "--json", state=tmp_path / "state").stdout)["measured"])
        == 3
    )

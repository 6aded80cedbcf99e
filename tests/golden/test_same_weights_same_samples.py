"""The same weights give the same samples, whichever framework wrote them."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from foreshock.daemon.formats import open_checkpoint
from foreshock.daemon.formats.files import Files
from foreshock.daemon.formats.reading import read_tensor
from foreshock.daemon.pipeline.measure import measure
from foreshock.daemon.pipeline.request import Base, MeasureRequest, Source
from foreshock.storage.records import Sample

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

STEPS = (2, 4, 6)
WRITER = Path(__file__).parents[1] / "writers" / "fsdp2_dcp.py"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints of a real Trainer run: sharded safetensors, grouped-query attention."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers

        torch.manual_seed(0)
        config = transformers.LlamaConfig(
            vocab_size=64,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            intermediate_size=48,
            max_position_embeddings=32,
        )
        model = transformers.LlamaForCausalLM(config)
        root = tmp_path_factory.mktemp("trainer")
        arguments = transformers.TrainingArguments(
            output_dir=str(root),
            max_steps=STEPS[-1],
            save_steps=2,
            logging_steps=1,
            per_device_train_batch_size=4,
            learning_rate=1e-2,
            use_cpu=True,
            report_to=[],
            disable_tqdm=True,
        )
        data = [{"input_ids": (row := torch.randint(0, 64, (16,))), "labels": row} for _ in range(64)]
        transformers.Trainer(model=model, args=arguments, train_dataset=data).train()
        for step in STEPS:
            directory = root / f"checkpoint-{step}"
            loaded = transformers.LlamaForCausalLM.from_pretrained(directory, dtype=torch.float32)
            loaded.save_pretrained(root / "sharded" / f"checkpoint-{step}", max_shard_size="20KB")
    return root


def weights(trained: Path, step: int) -> dict[str, torch.Tensor]:
    return load_file(trained / f"checkpoint-{step}" / "model.safetensors")


def samples(root: Path, names: Iterable[str]) -> set[Sample]:
    """Samples of the last step against the ones before, without the trainer's own log."""
    first, middle, last = (Source(s, str(root / n)) for s, n in zip(STEPS, names, strict=True))
    request = MeasureRequest(last, (Base(1, middle, first), Base(2, first)))
    events = [event for event in measure(request) if isinstance(event, list)]
    return {sample for event in events for sample in event if sample.key.role != "training"}


@pytest.fixture(scope="module")
def expected(trained: Path) -> set[Sample]:
    found = samples(trained, [f"checkpoint-{step}" for step in STEPS])
    assert {s.key.metric for s in found} >= {"update.effective_rank", "qk_first_order.effective_rank"}
    assert len({s.key.unit for s in found}) == 1 + 4
    return found


def same_tensors(trained: Path, path: Path, step: int) -> None:
    checkpoint = open_checkpoint(path)
    files = Files(checkpoint.root)
    for name, tensor in weights(trained, step).items():
        (saved,) = {name, f"model.{name}", f"model._orig_mod.{name}"} & checkpoint.tensors.keys()
        assert torch.equal(read_tensor(checkpoint, saved, files), tensor), name


def test_sharded_safetensors_of_the_real_trainer(trained: Path, expected: set[Sample]) -> None:
    root = trained / "sharded"
    assert (root / "checkpoint-2" / "model.safetensors.index.json").exists()
    same_tensors(trained, root / "checkpoint-2", 2)
    assert samples(root, [f"checkpoint-{step}" for step in STEPS]) == expected


def test_the_trainer_s_own_log_is_taken_over(trained: Path) -> None:
    request = MeasureRequest(Source(6, str(trained / "checkpoint-6")), log_after=4)
    found = [s for event in measure(request) if isinstance(event, list) for s in event]
    losses = [s.step for s in found if s.key.metric == "training.loss"]
    assert losses == [5, 6]


def test_nanogpt_s_compiled_torch_save(trained: Path, expected: set[Sample], tmp_path: Path) -> None:
    arguments = {"n_layer": 2, "n_head": 4, "n_kv_head": 2, "n_embd": 32}
    for step in STEPS:
        state = {f"_orig_mod.{name}": tensor for name, tensor in weights(trained, step).items()}
        torch.save(
            {"model": state, "model_args": arguments, "iter_num": step, "config": {"lr": 1e-3}},
            tmp_path / f"ckpt_{step}.pt",
        )
    same_tensors(trained, tmp_path / "ckpt_2.pt", 2)
    config = trained / "checkpoint-2" / "config.json"
    shutil.copy(config, tmp_path / "config.json")
    assert samples(tmp_path, [f"ckpt_{step}.pt" for step in STEPS]) == expected


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def save_sharded(source: Path, output: Path) -> None:
    """Run the two writers."""
    environment = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": "2",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    writers = [
        subprocess.Popen(
            [sys.executable, str(WRITER), str(source), str(output)],
            env={**environment, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for rank in range(2)
    ]
    for writer in writers:
        said, _ = writer.communicate(timeout=240)
        assert writer.returncode == 0, said.decode()


def test_fsdp2_shards_of_two_processes(trained: Path, expected: set[Sample], tmp_path: Path) -> None:
    for step in STEPS:
        save_sharded(trained / f"checkpoint-{step}", tmp_path / f"step-{step}")
    assert len(list((tmp_path / "step-2").glob("*.distcp"))) == 2
    shutil.copy(trained / "checkpoint-2" / "config.json", tmp_path / "config.json")
    same_tensors(trained, tmp_path / "step-2", 2)
    assert samples(tmp_path, [f"step-{step}" for step in STEPS]) == expected

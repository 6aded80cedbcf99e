"""Which format reads a place."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from foreshock.daemon.errors import CheckpointError, UnsupportedCheckpoint
from foreshock.daemon.formats import FORMATS, claiming_format, open_checkpoint
from foreshock.daemon.formats import torch_file as torch_file_module
from tests.writers import raw_safetensors
from tests.writers.child_process import child_environment
from tests.writers.layouts import write_dcp, write_sharded_safetensors, write_torch_file

W = {"w": torch.ones(2)}


@pytest.mark.parametrize(
    ("names", "format_"),
    [
        ({"model.safetensors"}, "safetensors"),
        ({"adapter_model.safetensors", "adapter_config.json"}, "safetensors"),
        ({"model.safetensors.index.json"}, "safetensors"),
        ({"model.safetensors", "optimizer.pt", "rng_state.pth", "training_args.bin"}, "safetensors"),
        ({".metadata", "__0_0.distcp"}, "torch.distributed.checkpoint"),
        ({"__0_0.distcp"}, "torch.distributed.checkpoint"),
        ({".metadata", "__0_0.distcp", "common.pt"}, "megatron_core"),
        ({"ckpt.pt"}, "torch.save"),
        ({"pytorch_model.bin.index.json"}, "torch.save"),
        ({"mp_rank_00_model_states.pt"}, "torch.save"),
        ({"optimizer.pt", "scheduler.pt", "rng_state_0.pth", "random_states_0.pt"}, None),
        ({".tmpAbCdEf", ".metadata.tmp", ".model.safetensors", ".x.pt"}, None),
        ({"config.json", "trainer_state.json"}, None),
        (set(), None),
    ],
)
def test_a_directory_is_claimed_by_its_names(names: set[str], format_: str | None) -> None:
    claiming = claiming_format(frozenset(names))
    assert (claiming.name if claiming else None) == format_


def test_a_file_is_opened_by_itself(tmp_path: Path) -> None:
    write_torch_file(tmp_path, W)
    raw_safetensors.write(tmp_path / "other.safetensors", {"v": raw_safetensors.entry()}, bytes(4))
    assert list(open_checkpoint(tmp_path / "pytorch_model.bin").tensors) == ["w"]
    assert list(open_checkpoint(tmp_path / "other.safetensors").tensors) == ["v"]


@pytest.mark.parametrize("entry", [".metadata", "__0_0.distcp"])
def test_any_file_of_a_distributed_checkpoint_stands_for_the_whole(tmp_path: Path, entry: str) -> None:
    write_dcp(tmp_path, W)
    assert list(open_checkpoint(tmp_path / entry).tensors) == ["model.w"]


def test_an_index_stands_for_its_shards(tmp_path: Path) -> None:
    write_sharded_safetensors(tmp_path, {**W, "v": torch.ones(1)})
    assert list(open_checkpoint(tmp_path / "model.safetensors.index.json").tensors) == ["v", "w"]


def test_a_file_of_no_known_kind_is_refused_with_what_was_looked_for(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    with pytest.raises(UnsupportedCheckpoint) as raised:
        open_checkpoint(tmp_path / "model.gguf")
    assert all(format_.name in str(raised.value) for format_ in FORMATS)


def test_headers_that_do_not_fit_into_memory_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(torch_file_module, "read_torch_shard", exhausted)
    write_torch_file(tmp_path, W)
    with pytest.raises(UnsupportedCheckpoint, match="do not fit into memory"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000, "/proc/self/mem/x", "/nowhere/at/all"])
def test_a_path_that_is_none_is_one_of_our_errors(path: str) -> None:
    with pytest.raises(CheckpointError):
        open_checkpoint(Path(path))


def test_opening_needs_no_torch(tmp_path: Path) -> None:
    write_dcp(tmp_path, W)
    code = (
        "import sys; from pathlib import Path; from foreshock.daemon.formats import open_checkpoint;"
        "print(list(open_checkpoint(Path(sys.argv[1])).tensors), 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
        env=child_environment(),
    )
    assert done.stdout == "['model.w'] False\n"

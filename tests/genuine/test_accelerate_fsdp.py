"""What the real Accelerate writes under FSDP2 is read bit for bit, from the model's folder alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from foreshock.daemon.formats import open_checkpoint
from foreshock.daemon.formats.files import Files
from foreshock.daemon.formats.reading import read_tensor
from foreshock.daemon.roles import ModelConfig, resolve
from tests.writers.child_process import child_environment
from tests.writers.weights import same_bits

GENERATOR = Path(__file__).parent / "generators" / "accelerate_fsdp.py"
PREFIX = "model."


@pytest.mark.slow
def test_sharded_state_of_two_ranks(tmp_path: Path) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    done = subprocess.run(
        [*launcher, str(GENERATOR), str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
        env=child_environment(ACCELERATE_USE_CPU="true", CUDA_VISIBLE_DEVICES=""),
    )
    assert done.returncode == 0, done.stderr[-3000:]
    expected = load_file(tmp_path / "expected.safetensors")

    checkpoint = open_checkpoint(tmp_path / "step_10")

    assert checkpoint.format == "accelerate_fsdp"
    assert checkpoint.tensors.keys() == {PREFIX + name for name in expected}
    files = Files(checkpoint.root)
    for name, tensor in expected.items():
        assert same_bits(read_tensor(checkpoint, PREFIX + name, files), tensor), name
    assert not any(name.startswith("optimizer") for name in checkpoint.files)
    roles = resolve(checkpoint.tensors, ModelConfig({"num_attention_heads": 4, "num_key_value_heads": 2}))
    assert [layer.index for layer in roles.layers] == [0, 1]

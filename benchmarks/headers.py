"""What the headers of a large checkpoint cost, and how many bytes measuring reads beside what it needs.

    python benchmarks/headers.py [--tensors 100000] [--shards 512]

Checkpoints of many tiny tensors in many shards are written in a temporary directory, once as safetensors,
once as PyTorch Distributed Checkpoint, once as `torch.save` files. Each is opened in a process of its own.
Seconds are of the processor, and also given as a ratio to what parsing the same safetensors headers with
`json.loads` takes in the
same run: that much, no reader could save.
"""

from __future__ import annotations

import argparse
import json
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from foreshock.daemon.pipeline.measure import Outcome, measure
from foreshock.daemon.pipeline.opened import open_source
from foreshock.daemon.pipeline.request import HeadCounts, MeasureRequest, Source

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.writers.dcp_chunks import ChunkWriter

_OPEN = """
import re, sys, time
from pathlib import Path
from foreshock.daemon.formats import open_checkpoint

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1000

before, started = peak(), time.process_time()
checkpoint = open_checkpoint(Path(sys.argv[1]))
print(len(checkpoint.tensors), time.process_time() - started, peak(), peak() - before)
"""

Weights = dict[str, Tensor]


def dealt(num_tensors: int, num_shards: int) -> list[Weights]:
    """Tensors of two elements, dealt out to shards."""
    shards: list[Weights] = [{} for _ in range(num_shards)]
    for number in range(num_tensors):
        name = f"model.layers.{number // 1000}.mlp.experts.{number % 1000}.down_proj.weight"
        shards[number % num_shards][name] = torch.full((2, 1), float(number))
    return shards


def write_safetensors(directory: Path, shards: list[Weights]) -> None:
    """Shards behind an index."""
    weight_map: dict[str, str] = {}
    for number, shard in enumerate(shards):
        file = f"model-{number + 1:05d}-of-{len(shards):05d}.safetensors"
        save_file(shard, directory / file)
        weight_map.update(dict.fromkeys(shard, file))
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def write_torch_files(directory: Path, shards: list[Weights]) -> None:
    """The same in `torch.save` archives."""
    weight_map: dict[str, str] = {}
    for number, shard in enumerate(shards):
        file = f"pytorch_model-{number + 1:05d}-of-{len(shards):05d}.bin"
        torch.save(shard, directory / file)
        weight_map.update(dict.fromkeys(shard, file))
    (directory / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": weight_map}))


def write_dcp(directory: Path, shards: list[Weights]) -> None:
    """The same behind one pickled index."""
    writer = ChunkWriter(num_files=len(shards))
    for shard in shards:
        for name, tensor in shard.items():
            writer.add(name, tensor, (1, 1))
    writer.write(directory)


def opened(directory: Path) -> tuple[int, float, float, float]:
    """(tensors, CPU seconds, peak resident MB, of which above the start) of a process that opens it."""
    done = subprocess.run(
        [sys.executable, "-c", _OPEN, str(directory)], check=True, capture_output=True, text=True
    )
    tensors, seconds, peak, grown = done.stdout.split()
    return int(tensors), float(seconds), float(peak), float(grown)


def json_seconds(directory: Path) -> float:
    """What the JSON of all safetensors headers takes alone."""
    headers = []
    for path in directory.glob("*.safetensors"):
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            headers.append(file.read(length))
    started = time.process_time()
    for header in headers:
        json.loads(header)
    return time.process_time() - started


def bytes_read_ratio(directory: Path) -> float:
    """Bytes that measuring a checkpoint reads, over the bytes of the tensors that have a role."""
    directory.mkdir()
    generator = torch.Generator().manual_seed(0)
    roles = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.up_proj")
    weights = {
        f"model.layers.{layer}.{role}.weight": torch.randn(1024, 1024, generator=generator)
        for layer in range(8)
        for role in roles
    }
    save_file(weights, directory / "model.safetensors")
    config = {"num_attention_heads": 8, "num_key_value_heads": 8, "hidden_size": 1024}
    (directory / "config.json").write_text(json.dumps(config))
    source = Source(1, str(directory))
    opened_source = open_source(source, HeadCounts())
    needed = sum(opened_source.checkpoint.tensors[name].num_bytes for name in opened_source.roles.parameters)
    *_, outcome = measure(MeasureRequest(source))
    assert isinstance(outcome, Outcome)
    return outcome.bytes_read / needed


def main() -> None:
    """Write, open, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tensors", type=int, default=100_000)
    parser.add_argument("--shards", type=int, default=512)
    options = parser.parse_args()
    writers: dict[str, Callable[[Path, list[Weights]], None]] = {
        "safetensors": write_safetensors,
        "distributed checkpoint": write_dcp,
        "torch.save": write_torch_files,
    }
    shards = dealt(options.tensors, options.shards)
    with tempfile.TemporaryDirectory(prefix="foreshock-bench-") as place:
        floor = 0.0
        print(f"{options.tensors} tensors in {options.shards} shards")
        print(f"{'headers of':24}{'seconds':>9}{'× json.loads':>14}{'peak MB':>9}{'grown MB':>10}")
        for name, write in writers.items():
            directory = Path(place) / name.replace(" ", "-")
            directory.mkdir()
            write(directory, shards)
            floor = floor or json_seconds(directory)
            tensors, seconds, peak, grown = opened(directory)
            assert tensors == options.tensors
            print(f"{name:24}{seconds:9.2f}{seconds / floor:14.1f}{peak:9.0f}{grown:10.0f}")
        ratio = bytes_read_ratio(Path(place) / "checkpoint-1")
        print(f"bytes read for the default monitors: {ratio:.4f} of the bytes of the tensors they need")


if __name__ == "__main__":
    main()

"""How much memory `foreshock measure OLD NEW` takes on a pair of checkpoints of 2 GB together.

    python benchmarks/memory.py [--layers 25] [--width 2048]

The pair is made of random float32 attention weights in sharded safetensors, in a temporary directory. The
peak is the sum over the command's processes of each one's own peak, so it can only be too high.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

HEADS, KV_HEADS = 16, 4


@dataclass(frozen=True, slots=True)
class Usage:
    """What one measurement took.

    Attributes:
        peak_bytes: resident, over all processes.
        outcome: as the command reports it.
    """

    peak_bytes: int
    seconds: float
    outcome: dict[str, Any]


def write_checkpoint(directory: Path, *, layers: int, width: int, seed: int) -> int:
    """One shard a layer, with an index; bytes written."""
    directory.mkdir(parents=True)
    generator = torch.Generator().manual_seed(seed)
    rows = {"q": width, "k": width * KV_HEADS // HEADS, "v": width * KV_HEADS // HEADS, "o": width}
    weight_map: dict[str, str] = {}
    for layer in range(layers):
        file = f"model-{layer + 1:05d}-of-{layers:05d}.safetensors"
        tensors = {
            f"model.layers.{layer}.self_attn.{role}_proj.weight": torch.randn(n, width, generator=generator)
            for role, n in rows.items()
        }
        save_file(tensors, directory / file)
        weight_map.update(dict.fromkeys(tensors, file))
    config = {"model_type": "llama", "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS}
    (directory / "config.json").write_text(json.dumps({**config, "hidden_size": width}))
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return sum(path.stat().st_size for path in directory.glob("*.safetensors"))


def measured_pair(old: Path, new: Path) -> Usage:
    """Run the command and watch its processes."""
    command = [sys.executable, "-m", "foreshock.daemon.cli", "measure", str(old), str(new), "--json"]
    started = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output)
        peaks: dict[int, int] = {}
        while process.poll() is None:
            for pid in (process.pid, *_descendants(process.pid)):
                peaks[pid] = max(peaks.get(pid, 0), _peak_bytes(pid))
            time.sleep(0.02)
        if process.returncode:
            raise SystemExit(f"the command failed with exit status {process.returncode}")
        output.seek(0)
        outcome = json.load(output)["outcome"]
    return Usage(sum(peaks.values()), time.monotonic() - started, outcome)


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            direct = [int(child) for child in children.read_text().split()]
        except OSError:  # it ended meanwhile
            continue
        for child in direct:
            found += [child, *_descendants(child)]
    return found


def _peak_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)


def main() -> None:
    """Make the pair, measure it, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=25)
    parser.add_argument("--width", type=int, default=2048)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="foreshock-bench-") as place:
        old, new = Path(place) / "checkpoint-1", Path(place) / "checkpoint-2"
        size = sum(
            write_checkpoint(path, layers=options.layers, width=options.width, seed=seed)
            for seed, path in enumerate((old, new))
        )
        usage = measured_pair(old, new)
    print(f"pair               {size / 1e9:8.2f} GB")
    print(f"peak resident      {usage.peak_bytes / 1e6:8.0f} MB  ({usage.peak_bytes / size:.1%} of the pair)")
    print(f"read of the newer  {usage.outcome['bytes_read'] / (size / 2):8.4f} of its bytes")
    print(f"seconds            {usage.seconds:8.1f}")


if __name__ == "__main__":
    main()

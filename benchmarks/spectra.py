"""How the compressed computations compare with the straightforward ones, as ratios within this run.

    python benchmarks/spectra.py [--width 1024] [--repeat 3]

Each row computes the same singular values twice, checks that they agree, and prints how many times faster
ours is. One thread.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from foreshock.daemon.linalg import Stored, blockwise_singular_values, qk_increment

HEADS, HEAD_DIM = 8, 128


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison.

    Attributes:
        difference: largest, relative to the largest singular value.
    """

    name: str
    ours_seconds: float
    theirs_seconds: float
    difference: float


def timed(compute: Callable[[], Tensor], repeat: int) -> tuple[Tensor, float]:
    """The result, and the shortest of some times."""
    best, result = float("inf"), torch.empty(0)
    for _ in range(repeat):
        started = time.perf_counter()
        result = compute()
        best = min(best, time.perf_counter() - started)
    return result, best


def compared(name: str, ours: Callable[[], Tensor], theirs: Callable[[], Tensor], repeat: int) -> Row:
    """Both, and how far they differ."""
    mine, my_seconds = timed(ours, repeat)
    reference, their_seconds = timed(theirs, 1)
    gap = (mine - reference[: len(mine)].to(torch.float64)).abs().max() / reference[0]
    return Row(name, my_seconds, their_seconds, float(gap))


def rows(width: int, repeat: int) -> list[Row]:
    """All comparisons."""
    generator = torch.Generator().manual_seed(0)

    def weight(num_rows: int, size: float = 1.0) -> Tensor:
        return size * torch.randn(num_rows, width, generator=generator)

    before = weight(width)
    after = before + weight(width, 1e-3)
    q, k = weight(HEAD_DIM), weight(HEAD_DIM)
    dq, dk = weight(HEAD_DIM, 1e-3), weight(HEAD_DIM, 1e-3)

    def core() -> Tensor:
        of_q = (Stored(q[None]), Stored(dq[None]))
        return qk_increment(of_q, (Stored(k[None]), Stored(dk[None]))).first_order[0]

    def dense() -> Tensor:
        return torch.linalg.svdvals(dq.T @ k + q.T @ dk)

    return [
        compared(f"Δ2 of one head, core against dense {width} × {width}", core, dense, repeat),
        compared(
            f"ΔW of {width} × {width}, Gram in float64 against svdvals in float32",
            lambda: blockwise_singular_values(Stored(after, before)),
            lambda: torch.linalg.svdvals(after - before),
            repeat,
        ),
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'computation':<72} {'ours s':>8} {'other s':>8} {'times':>7} {'differs':>9}")
    for row in rows(options.width, options.repeat):
        ratio = row.theirs_seconds / row.ours_seconds
        numbers = f"{row.ours_seconds:8.3f} {row.theirs_seconds:8.3f} {ratio:7.1f} {row.difference:9.1e}"
        print(f"{row.name:<72} {numbers}")


if __name__ == "__main__":
    main()

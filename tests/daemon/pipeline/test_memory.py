from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.memory import measured_pair, write_checkpoint

MEGABYTE = 1_000_000


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_pair_of_two_gigabytes_is_measured_in_less_than_700_megabytes(tmp_path: Path) -> None:
    old, new = tmp_path / "checkpoint-1", tmp_path / "checkpoint-2"
    sizes = [write_checkpoint(p, layers=25, width=2048, seed=s) for s, p in enumerate((old, new))]
    assert sum(sizes) > 2000 * MEGABYTE
    usage = measured_pair(old, new)
    assert usage.peak_bytes < 700 * MEGABYTE
    assert usage.outcome["layers"] == 25
    assert not usage.outcome["problems"]
    assert 0.999 < usage.outcome["bytes_read"] / sizes[1] < 1.001

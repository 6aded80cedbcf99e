"""The demo keeps its promises, with its own numbers."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from foreshock.storage.store import Store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ONSET = 1000
SPACING = 50
WARMED_UP = 500


def demo(directory: Path, fault: str) -> str:
    command = [sys.executable, "-m", "foreshock.daemon.cli", "demo", "--fault", fault]
    done = subprocess.run(
        [*command, "--directory", str(directory)], capture_output=True, text=True, timeout=800, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def ranks(directory: Path) -> list[dict[int, float]]:
    """S₂(ΔW_q) by step, one mapping a layer."""
    with Store.open(f"sqlite:///{directory}/state/foreshock.sqlite", migrate=False, read_only=True) as store:
        (run,) = store.runs()
        found = store.series(run.id, "update.effective_rank", role="q", unit="", lag=1)
        return [
            {
                step: value
                for step, value in zip(series.steps, series.values, strict=True)
                if value is not None
            }
            for series in found
        ]


def test_the_planted_fault_shows_at_once_and_200_steps_before_the_loss(
    tmp_path: Path,
) -> None:
    said = demo(tmp_path, "attention")
    falls = [
        min(series[ONSET + n * SPACING] for n in (1, 2, 3)) / series[ONSET] for series in ranks(tmp_path)
    ]
    assert min(falls) < 0.5
    spoke = re.search(r"Foreshock spoke at step (\d+)", said)
    loss = re.search(r"The loss was 10 % above its best at step (\d+)", said)
    assert spoke
    assert loss
    assert ONSET < int(spoke[1]) <= ONSET + 3 * SPACING
    assert int(loss[1]) - int(spoke[1]) >= 200


def test_a_healthy_run_shows_no_such_fall_and_no_rule_speaks(tmp_path: Path) -> None:
    said = demo(tmp_path, "none")
    assert "No rule spoke." in said
    for series in ranks(tmp_path):
        steps = sorted(step for step in series if step >= WARMED_UP)
        for before in steps:
            after = [series[step] for step in steps if before < step <= before + 3 * SPACING]
            assert not after or min(after) > 0.5 * series[before]

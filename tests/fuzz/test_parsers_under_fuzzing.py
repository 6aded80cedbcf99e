"""A minute of coverage-guided fuzzing finds nothing but errors of ours; `make fuzz` looks longer."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from foreshock.daemon.errors import CheckpointError
from tests.fuzz.parsers import PARSERS, Parser
from tests.writers.child_process import child_environment

SECONDS = 60
FEWEST_RUNS = 300


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.name)
def test_seeds_are_sound(parser: Parser) -> None:
    for seed in parser.seeds:
        if parser.name == "pickle":
            parser.parse(seed)
        else:
            parser.parse(seed)
            with pytest.raises(CheckpointError):
                parser.parse(seed[: len(seed) // 2])


@pytest.mark.slow
def test_a_minute_of_fuzzing_finds_only_errors_of_ours(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.fuzz"]
    environment = {**child_environment(), "PYTHONPATH": str(Path(__file__).parents[2])}
    running = {
        parser.name: subprocess.Popen(
            [*command, parser.name, str(SECONDS)],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for parser in PARSERS
    }
    outputs = {name: process.communicate()[1] for name, process in running.items()}

    for name, process in running.items():
        assert process.returncode == 0, f"{name}: {outputs[name][-3000:]}"
        runs = re.search(r"number_of_executed_units: (\d+)", outputs[name])
        assert runs is not None
        assert int(runs[1]) >= FEWEST_RUNS, f"{name} was tried only {runs[1]} times"

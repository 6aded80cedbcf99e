"""Coverage-guided fuzzing of one parser: `python -m tests.fuzz PARSER SECONDS [CORPUS]`.

Ends with an error as soon as anything but an error of ours comes out; the input is then kept in the
directory `fuzz-findings`, and running with it as the corpus shows the traceback again.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["foreshock.daemon.formats"]):
    from tests.fuzz.parsers import PARSERS, write_seeds

from foreshock.daemon.errors import CheckpointError

MAX_INPUT_BYTES = 16_384
MAX_INPUT_SECONDS = 10
MAX_MEGABYTES = 4096


def main() -> None:
    """Fuzz until the time is over."""
    name, seconds = sys.argv[1:3]
    parser = next(each for each in PARSERS if each.name == name)

    def test_one_input(content: bytes) -> None:
        try:
            parser.parse(content)
        except CheckpointError:
            return

    findings = Path("fuzz-findings")
    findings.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        corpus = Path(sys.argv[3]) if len(sys.argv) > 3 else Path(scratch)
        write_seeds(parser, corpus)
        limits = (
            f"-max_total_time={seconds}",
            f"-max_len={MAX_INPUT_BYTES}",
            f"-timeout={MAX_INPUT_SECONDS}",
            f"-rss_limit_mb={MAX_MEGABYTES}",
            f"-artifact_prefix={findings}/{name}-",
        )
        atheris.Setup([sys.argv[0], *limits, "-print_final_stats=1", str(corpus)], test_one_input)
        atheris.Fuzz()


if __name__ == "__main__":
    main()

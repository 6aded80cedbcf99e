"""Python environments with real training frameworks, made once and kept in `.genuine/`.

Each framework gets an environment of its own, since their pins clash. All of them see the packages of the
environment that runs the tests (torch above all) and add, or replace, what `REQUIREMENTS` says.
"""

from __future__ import annotations

import contextlib
import os
import signal
import site
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = ROOT / ".genuine"
GENERATORS = Path(__file__).parent / "generators"

REQUIREMENTS: Mapping[str, tuple[str, ...]] = {
    "deepspeed": ("deepspeed==0.19.8",),
    "lightning": ("lightning==2.6.6", "litgpt==0.5.9"),
    "megatron": ("megatron-core==0.16.1",),
    "orbax": ("orbax-checkpoint==0.12.8", "jax==0.10.2"),
    "torchtitan": ("torchtitan==0.3.0", "triton"),
}
"""The exact versions that the README's table names."""


def interpreter(framework: str) -> Path:
    """The Python of a framework's environment, which is made at the first call."""
    home = ENVIRONMENTS / framework
    python, done = home / "bin" / "python", home / "installed"
    wanted = "\n".join(REQUIREMENTS[framework])
    if done.exists() and done.read_text(encoding="utf-8") == wanted:
        return python
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
    library = next((home / "lib").glob("python*/site-packages"))
    (library / "tests-environment.pth").write_text("\n".join(site.getsitepackages()), encoding="utf-8")
    constraints = ROOT / ".ci" / "constraints.txt"
    command = [python, "-m", "pip", "install", "--quiet", "--constraint", constraints]
    subprocess.run([*command, *REQUIREMENTS[framework]], check=True)
    done.write_text(wanted, encoding="utf-8")
    return python


def generate(
    python: Path | str,
    generator: str,
    arguments: Sequence[str | Path] = (),
    *,
    ranks: int = 1,
    environment: Mapping[str, str] | None = None,
    timeout_seconds: float = 280.0,
) -> str:
    """Run one of `generators/` under a framework's Python, over `ranks` processes; returns what it printed.

    Raises:
        AssertionError: it failed; the message holds the end of its output.
    """
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]
    command = [str(python), *(launcher if ranks > 1 else []), str(GENERATORS / f"{generator}.py")]
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        process = subprocess.Popen(
            [*command, *map(str, arguments)],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **(environment or {})},
            start_new_session=True,
        )
        try:
            code = process.wait(timeout_seconds)
        finally:  # frameworks leave helpers behind
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        printed = output.read()
    assert code == 0, f"{generator}: exit {code}\n{printed[-4000:]}"
    return printed

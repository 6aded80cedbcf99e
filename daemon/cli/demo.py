"""`foreshock demo`: a real tiny training job goes wrong inside, watched live while its loss still falls."""

from __future__ import annotations

import logging
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from foreshock.daemon.cli import options
from foreshock.daemon.cli.headline import HEADER, headline, row
from foreshock.daemon.cli.session import observed_run
from foreshock.daemon.cli.story import Story
from foreshock.daemon.cli.watch import serving, stopping_on_signals
from foreshock.daemon.config import Settings
from foreshock.daemon.errors import ConfigError
from foreshock.daemon.watch.loop import Loop
from foreshock.daemon.watch.observer import Measurement

TRAINER = "foreshock.daemon.demo.trainer"
ONSET_STEP = 1000


class Fault(StrEnum):
    """What the demo's job suffers from."""

    ATTENTION = "attention"
    NONE = "none"


def demo(
    *,
    fault: Annotated[Fault, typer.Option(help="The fault that is switched on mid-run.")] = Fault.ATTENTION,
    directory: Annotated[
        Path | None, typer.Option(help="For checkpoints and database; a new one below /tmp by default.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the training job.")] = 0,
    port: options.Port = None,
    stay: Annotated[bool, typer.Option(help="Serve the dashboard afterwards until Ctrl-C.")] = False,
) -> None:
    """Train a small transformer with a planted attention fault, and watch it live.

    A byte-level Llama learns Python's standard library in a process of its own and saves ordinary
    checkpoints. Mid-run its attention gradients get the bias of a low-precision kernel. Each line shows
    what Foreshock sees beside the loss; the first rule that speaks says so at its end.

    Exit code 0 when the fault was found before the loss moved (or, with --fault none, nothing was said).
    """
    directory = (directory or Path(tempfile.mkdtemp(prefix="foreshock-demo-"))).absolute()
    checkpoints = directory / "checkpoints"
    if checkpoints.exists():
        raise ConfigError(f"{checkpoints} exists already; give another --directory")
    checkpoints.mkdir(parents=True)
    settings = options.settings_from(
        None,
        state_dir=directory / "state",
        run="demo",
        interval_seconds=1.0,
        settle_seconds=0.2,
        port=0 if port is None else port,
        log_level="ERROR",
    )
    logging.getLogger("foreshock.daemon.alerts").setLevel(logging.CRITICAL)  # the table says it
    console = Console(highlight=False, soft_wrap=True, markup=False)
    story = Story(ONSET_STEP if fault is Fault.ATTENTION else None)
    command = _trainer_command(checkpoints, fault, seed)
    _watch_training(settings, checkpoints, command, story, console, stay=stay)
    for sentence in story.tell():
        console.print(sentence)
    program = sys.argv[0] if sys.argv[0].endswith("foreshock") else "foreshock"
    console.print(f"To look at it again: {program} serve --state-dir {settings.state_dir}")
    raise typer.Exit(0 if story.as_expected else 1)


def _trainer_command(checkpoints: Path, fault: Fault, seed: int) -> list[str]:
    command = [sys.executable, "-m", TRAINER, "--output", str(checkpoints)]
    return [*command, "--fault", fault, "--onset-step", str(ONSET_STEP), "--seed", str(seed)]


def _watch_training(
    settings: Settings, checkpoints: Path, command: list[str], story: Story, console: Console, *, stay: bool
) -> None:
    def on_measurement(measurement: Measurement) -> None:
        line = headline(measurement.entry.step, measurement.samples)
        story.add(line, measurement.samples, measurement.findings)
        console.print(row(line, measurement.findings), style="bold red" if measurement.findings else None)

    with observed_run(settings, checkpoints, caching=True) as observer:
        loop = Loop(observer, on_measurement)
        with serving(settings, observer.store) as url, stopping_on_signals(loop.stop):
            console.print(f"A job trains in {checkpoints} · dashboard at {url}")
            console.print(HEADER, style="bold")
            with _training(command) as trainer:
                loop.job_ended = lambda: trainer.poll() is not None
                loop.run()
            if trainer.returncode:
                console.print(f"The training job ended with exit status {trainer.returncode}.")
            if stay:
                _stay(url, console)


@contextmanager
def _training(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """The job as a process of its own; it does not outlive us."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, process_group=0)  # noqa: S603 - our own module
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def _stay(url: str, console: Console) -> None:
    stopped = threading.Event()
    console.print(f"Serving {url} until Ctrl-C.")
    with stopping_on_signals(stopped.set):
        stopped.wait()

"""`foreshock measure`: a finished or failed run as a whole, or one pair of checkpoints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from foreshock.daemon.cli import options
from foreshock.daemon.cli.headline import HEADER, headline, row
from foreshock.daemon.cli.pair import measure_pair, pair_table
from foreshock.daemon.cli.session import observed_run
from foreshock.daemon.cli.watch import stopping_on_signals
from foreshock.daemon.config import Settings
from foreshock.daemon.watch.ledger import Entry
from foreshock.daemon.watch.observer import Measurement, Observer
from foreshock.daemon.worker.process import Interrupted
from foreshock.storage.records import Sample

INTERRUPTED = 130


def measure(
    directory: Annotated[Path, typer.Argument(help="A run's directory; with NEW, the older checkpoint.")],
    new: Annotated[Path | None, typer.Argument(help="The newer checkpoint of a pair.")] = None,
    *,
    config: options.ConfigFile = None,
    state_dir: options.StateDir = None,
    database: options.DatabaseUrl = None,
    run: options.RunName = None,
    lag: options.Lags = None,
    device: options.Device = None,
    threads: options.Threads = None,
    heads: options.NumHeads = None,
    kv_heads: options.KvHeads = None,
    head_dim: options.HeadDim = None,
    model_config: options.ModelConfigFile = None,
    as_json: options.AsJson = False,
    log_level: options.LogLevel = None,
) -> None:
    """Measure every checkpoint of a directory, oldest first, and store the numbers.

    What is stored already is not measured again. With two paths, OLD and NEW, only that difference is
    measured, and nothing is stored.
    """
    settings = options.settings_from(
        config,
        lags=lag,
        state_dir=state_dir,
        database_url=database,
        run=run,
        device=device,
        threads=threads,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        model_config_file=model_config,
        log_level=log_level or "WARNING",
    )
    if new is not None:
        _measure_pair(settings, directory, new, as_json=as_json)
    else:
        _measure_directory(settings, directory, as_json=as_json)


def _measure_pair(settings: Settings, old: Path, new: Path, *, as_json: bool) -> None:
    with _progress() as bar:
        task = bar.add_task("layers")
        samples, outcome = measure_pair(
            settings, old, new, lambda done, total: bar.update(task, completed=done, total=total)
        )
    if as_json:
        typer.echo(json.dumps({"outcome": outcome, "samples": [_json_sample(s) for s in samples]}))
        return
    console = Console(highlight=False)
    console.print(pair_table(samples))
    for text in [*outcome["problems"], *outcome["notes"]]:
        console.print(f"note: {text}", markup=False)


def _measure_directory(settings: Settings, directory: Path, *, as_json: bool) -> None:
    with _progress() as bar:
        task = bar.add_task("looking", total=None)

        def on_progress(entry: Entry, done: int, total: int) -> None:
            bar.update(task, description=f"step {entry.step}", completed=done, total=total)

        with observed_run(
            settings, directory, caching=False, settle_seconds=0, on_progress=on_progress
        ) as observer:
            with stopping_on_signals(observer.interrupt):
                try:
                    measurements = list(_measure_all(observer))
                except Interrupted:
                    raise typer.Exit(INTERRUPTED) from None
            if observer.root_error:
                raise typer.BadParameter(observer.root_error)
            records = observer.store.checkpoints(observer.run.id)
    if as_json:
        report = {
            "run": observer.run.name,
            "measured": [_json_measurement(each) for each in measurements],
            "checkpoints": [
                {"attempt": r.attempt, "step": r.step, "state": r.state, "reason": r.reason} for r in records
            ],
        }
        typer.echo(json.dumps(report))
        return
    console = Console(highlight=False, soft_wrap=True)
    console.print(HEADER, style="bold")
    for each in measurements:
        console.print(row(headline(each.entry.step, each.samples), each.findings), markup=False)
    for record in records:
        if record.reason:
            console.print(f"step {record.step} {record.state}: {record.reason}", markup=False)
    console.print(f"{len(measurements)} measured now, {len(records)} known; run {observer.run.name!r}")


def _measure_all(observer: Observer) -> Iterator[Measurement]:
    observer.register_metrics()
    while ready := observer.look():
        for entry in ready:
            measurement = observer.measure(entry)
            if measurement is not None:
                observer.tell()
                yield measurement


@contextmanager
def _progress() -> Iterator[Progress]:
    """A bar on standard error, where it is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield bar


def _json_measurement(measurement: Measurement) -> dict[str, Any]:
    entry = measurement.entry
    return {
        **asdict(headline(entry.step, measurement.samples)),
        "state": entry.state,
        "samples": len(measurement.samples),
        "findings": [asdict(finding) for finding in measurement.findings],
    }


def _json_sample(sample: Sample) -> dict[str, Any]:
    """A sample for machines; no JSON parser stumbles over NaN."""
    finite = sample.kind == "finite"
    return {
        **asdict(sample.key),
        "step": sample.step,
        "base_step": sample.base_step,
        "value": sample.value if finite else None,
        "kind": sample.kind,
        "reason": sample.reason,
    }

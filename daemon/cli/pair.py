"""One pair of checkpoints, measured and put on a table, without any database."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median

from rich.table import Table

from foreshock.daemon.config import Settings
from foreshock.daemon.discovery.names import step_in_name
from foreshock.daemon.pipeline.request import Base, HeadCounts, MeasureRequest, Source
from foreshock.daemon.watch.observer import measuring_worker
from foreshock.daemon.worker.messages import error_of, unpack_sample
from foreshock.daemon.worker.process import Message
from foreshock.storage.records import Sample

COLUMNS = (
    ("S₂(ΔW)", "update.effective_rank"),
    ("‖ΔW‖/‖W‖", "update.relative_norm"),
    ("resolution", "update.resolution"),
    ("S₂(Δ2)", "qk_first_order.effective_rank"),
    ("S₂(Δ1)", "qk_increment.effective_rank"),
    ("S₂(Δ3)", "qk_second_order.effective_rank"),
    ("logit bound", "qk.logit_bound"),
    ("ε", "router.conditioning"),
    ("similarity", "router.similarity"),
    ("entropy", "router.entropy_isotropic"),
)


def measure_pair(
    settings: Settings, old: Path, new: Path, on_progress: Callable[[int, int], None]
) -> tuple[tuple[Sample, ...], Message]:
    """Samples of the newer checkpoint and of its difference to the older, and the outcome.

    Raises:
        CheckpointError: one of them cannot be read.
        WorkerError: the measuring process died.
    """
    request = MeasureRequest(
        target=_source(new, 1),
        bases=(Base(1, _source(old, 0)),),
        heads=HeadCounts(settings.heads, settings.kv_heads, settings.head_dim),
        config=str(settings.model_config_file.absolute()) if settings.model_config_file else "",
        device=settings.device,
        bases_required=True,
    )
    worker = measuring_worker(settings)
    samples: list[Sample] = []
    try:
        message: Message = {}
        for message in worker.ask(
            {"ask": "measure", "request": request.to_json()}, silence_seconds=settings.silence_seconds
        ):
            if message["type"] == "samples":
                samples.extend(map(unpack_sample, message["samples"]))
            elif message["type"] == "progress":
                on_progress(message["done"], message["total"])
        if message["type"] == "failure":
            raise error_of(message)
    finally:
        worker.kill()
    return tuple(samples), message["outcome"]


def _source(path: Path, otherwise: int) -> Source:
    step = step_in_name(path.name)
    return Source(otherwise if step is None else step, str(path.absolute()))


def pair_table(samples: Sequence[Sample]) -> Table:
    """One row a layer and role; medians over heads where a quantity is per head."""
    shown = [(title, metric) for title, metric in COLUMNS if any(s.key.metric == metric for s in samples)]
    table = Table("layer", "role", box=None, header_style="bold", pad_edge=False)
    for title, _ in shown:
        table.add_column(title, justify="right")
    rows: dict[tuple[int, str], dict[str, list[Sample]]] = {}
    for sample in samples:
        key = sample.key
        if key.layer is not None and (not key.unit or key.role == "qk"):
            rows.setdefault((key.layer, key.role), {}).setdefault(key.metric, []).append(sample)
    for (layer, role), metrics in sorted(rows.items()):
        numbers = [_cell(metrics.get(metric, ())) for _, metric in shown]
        if any(numbers):
            table.add_row(str(layer), role, *numbers)
    return table


def _cell(samples: Iterable[Sample]) -> str:
    values = [s.value for s in samples if s.value is not None and not math.isnan(s.value)]
    reasons = sorted({s.reason for s in samples if s.reason})
    if not values:
        return reasons[0] if reasons else ""
    return f"{median(values):.4g}" + ("*" if reasons else "")

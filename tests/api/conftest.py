"""A small run in a real database, behind a real server on loopback."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import pytest

from foreshock.api.app import create_app
from foreshock.api.server import ApiServer
from foreshock.storage.records import (
    CheckpointRecord,
    CheckpointState,
    Finding,
    Metric,
    Sample,
    SeriesKey,
    Status,
)
from foreshock.storage.store import Store

RANK = "update.effective_rank"
STEPS = (100, 200, 300)
VALUES = {
    "": (8.0, 7.0, 6.0),
    "head.0": (4.0, math.nan, 2.0),
    "head.1": (None, math.inf, 6.0),
}
"""Of layer 0 by unit and step; layer 1 has ten times as much."""


def sample(
    metric: str, layer: int | None, unit: str, step: int, value: float | None, **more: object
) -> Sample:
    role, lag = ("training", 0) if layer is None else ("q", 1)
    parameter = "" if layer is None else f"layers.{layer}.q.weight"
    key = SeriesKey(metric, layer, role, parameter, unit, lag)
    return Sample(key, step, value, step - 100, reason="frozen_parameter" if value is None else "")


def samples_at(index: int) -> list[Sample]:
    step = STEPS[index]
    of_layers = [
        sample(RANK, layer, unit, step, None if values[index] is None else values[index] * 10**layer)
        for layer in (0, 1)
        for unit, values in VALUES.items()
    ]
    return [*of_layers, sample("training.loss", None, "", step, 3.0 - step / 1000)]


def record(store: Store, run: str) -> int:
    """A run of three measured checkpoints and one missed one; gives its id."""
    store.register_metrics(
        [
            Metric(RANK, "Effective rank of the update", low=1.0),
            Metric("training.loss", "Loss that the trainer logged", "nats"),
        ]
    )
    run_id = store.ensure_run(run, f"/checkpoints/{run}").id
    attempt = store.open_attempt(run_id, 100, "first checkpoint")
    for index, step in enumerate(STEPS):
        checkpoint = CheckpointRecord(
            1,
            step,
            f"/c/{step}",
            CheckpointState.MEASURED,
            format="safetensors",
            bytes_read=1000,
            seconds=0.5,
        )
        found = [
            Finding("rank_collapse", "layer 0, q", 300, "warning", "The rank fell.", 0, {"ratio": math.nan})
        ]
        store.record_measurement(attempt.id, checkpoint, samples_at(index), found if step == 300 else [])
    store.note_checkpoint(
        attempt.id, step=400, path="/c/400", state=CheckpointState.MISSED, reason="deleted_before_it_was_read"
    )
    return run_id


def watched(
    store: Store, run: str, *, healthy: bool = True, at: datetime | None = None, error: str = ""
) -> None:
    """Let a watcher report."""
    detail = {"run": run, "interval_seconds": 10.0, "backlog": 2, "last_error": error}
    store.set_status(Status(f"watch:{run}", at or datetime.now(UTC), healthy, detail))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Empty."""
    with Store.open(f"sqlite:///{tmp_path}/foreshock.sqlite") as opened:
        yield opened


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """One run, `small`; not to be written to."""
    path = tmp_path_factory.mktemp("api") / "foreshock.sqlite"
    with Store.open(f"sqlite:///{path}") as opened:
        record(opened, "small")
        yield opened


Serve = Callable[..., httpx2.Client]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serves a store; gives a client of the server."""
    with ExitStack() as stack:

        def start(store: Store, **options: object) -> httpx2.Client:
            server = stack.enter_context(ApiServer(create_app(store, version="1.2.3", **options)))
            return stack.enter_context(httpx2.Client(base_url=server.url, trust_env=False))

        yield start


@pytest.fixture(scope="module")
def client(recorded: Store) -> Iterator[httpx2.Client]:
    """Of a server over `recorded`."""
    with (
        ApiServer(create_app(recorded, version="1.2.3")) as server,
        httpx2.Client(base_url=server.url, trust_env=False) as opened,
    ):
        yield opened

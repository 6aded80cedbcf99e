"""The scrape, in a number of series that does not grow with the model's heads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from foreshock.api.layer_gauges import Gauge, families, gauges
from foreshock.api.ledger import Progress, progress_of
from foreshock.api.run_gauges import (
    checkpoint_families,
    findings_family,
    run_labels,
    watcher_families,
)
from foreshock.storage.errors import StorageError
from foreshock.storage.records import Run
from foreshock.storage.store import Store

MAX_FINDINGS_COUNTED = 1000
MAX_LAYER_GAUGES = 10_000
"""Of all runs together; the oldest runs are left out beyond it, and counted."""

# The encoder writes parts of the Accept header into its reply, so it gets one of ours.
_ACCEPT: Mapping[str, str] = {
    "prometheus": "text/plain; version=0.0.4",
    "openmetrics": "application/openmetrics-text; version=1.0.0",
}


class Exposition(Collector):
    """What a store says to Prometheus.

    The layers' gauges of a run are worked out once a measured checkpoint, not once a scrape.
    """

    def __init__(self, store: Store, version: str) -> None:
        self._store = store
        self._version = version
        self._known: dict[int, tuple[Progress, tuple[Gauge, ...]]] = {}
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def encode(self, representation: Literal["prometheus", "openmetrics"]) -> tuple[bytes, str]:
        """The text, and its content type."""
        encoder, content_type = choose_encoder(_ACCEPT[representation])
        return encoder(self._registry), content_type

    def collect(self) -> Iterator[Metric]:
        """Every family; while the database does not answer, only that it does not."""
        yield InfoMetricFamily("foreshock_build", "The version that runs", {"version": self._version})
        try:
            found = self._of_database()
        except StorageError:
            found = []
        yield GaugeMetricFamily("foreshock_database_up", "Whether the database answers", float(bool(found)))
        yield from found

    def _of_database(self) -> list[Metric]:
        runs = self._store.runs()
        labels = run_labels(runs)
        progress = {run.id: progress_of(self._store.checkpoints(run.id)) for run in runs}
        by_run, num_dropped = self._layer_gauges(runs, progress)
        return [
            *watcher_families(self._store.statuses()),
            *checkpoint_families({labels[number]: each for number, each in progress.items()}),
            findings_family(
                {labels[run.id]: self._store.findings(run.id, limit=MAX_FINDINGS_COUNTED) for run in runs}
            ),
            *families({labels[number]: each for number, each in by_run.items()}),
            GaugeMetricFamily(
                "foreshock_runs_not_exported", "Runs whose layers are left out of this scrape", num_dropped
            ),
        ]

    def _layer_gauges(
        self, runs: tuple[Run, ...], progress: Mapping[int, Progress]
    ) -> tuple[dict[int, tuple[Gauge, ...]], int]:
        kept: dict[int, tuple[Gauge, ...]] = {}
        num_gauges = 0
        for run in reversed(runs):
            found = self._gauges_of(run, progress[run.id])
            num_gauges += len(found)
            if num_gauges <= MAX_LAYER_GAUGES:
                kept[run.id] = found
        return kept, len(runs) - len(kept)

    def _gauges_of(self, run: Run, progress: Progress) -> tuple[Gauge, ...]:
        known = self._known.get(run.id)
        if known is None or known[0] != progress:
            known = (progress, gauges(self._store.latest(run.id), progress.analyzed_step))
            self._known[run.id] = known
        return known[1]

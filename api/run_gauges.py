"""What Prometheus is told of each run as a whole: its watcher, its checkpoints, its findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from foreshock.api.health import is_fresh, is_over
from foreshock.api.ledger import Progress
from foreshock.api.text import one_line
from foreshock.storage.records import Run, Status, StoredFinding


def run_labels(runs: Iterable[Run]) -> dict[int, str]:
    """A label for every run by its id: the name, made harmless and kept apart from the others.

    Two equal label sets would make Prometheus drop the whole scrape.
    """
    labels: dict[int, str] = {}
    for run in runs:
        label = one_line(run.name)
        while label in labels.values():
            label += f" #{run.id}"
        labels[run.id] = label
    return labels


def watcher_families(statuses: Iterable[Status]) -> Iterator[Metric]:
    """Whether each run is watched, and how many checkpoints wait."""
    now = datetime.now(UTC)
    up = GaugeMetricFamily(
        "foreshock_up", "Whether the run's watcher reports in time that it is well", labels=("run",)
    )
    queue = GaugeMetricFamily(
        "foreshock_queue_length", "Complete checkpoints that wait to be measured", labels=("run",)
    )
    current = {one_line(_run_of(each)): each for each in statuses if not is_over(each, now)}
    for label, status in current.items():
        up.add_metric((label,), float(status.healthy and is_fresh(status, now)))
        backlog = status.detail.get("backlog")
        if isinstance(backlog, int):
            queue.add_metric((label,), backlog)
    yield from (up, queue)


def _run_of(status: Status) -> str:
    return str(status.detail.get("run", status.component))


def checkpoint_families(progress: Mapping[str, Progress]) -> Iterator[Metric]:
    """How far each run is.

    Args:
        progress: by the run's label.
    """
    latest = GaugeMetricFamily(
        "foreshock_checkpoint_latest_step", "Newest step in the checkpoint directory", labels=("run",)
    )
    analyzed = GaugeMetricFamily(
        "foreshock_checkpoint_analyzed_step", "Newest step that was measured", labels=("run",)
    )
    moment = GaugeMetricFamily(
        "foreshock_checkpoint_last_analyzed_timestamp_seconds",
        "When a checkpoint was last measured",
        labels=("run",),
    )
    outcomes = CounterMetricFamily(
        "foreshock_checkpoints", "Checkpoints ever seen, by what became of them", labels=("run", "outcome")
    )
    read = CounterMetricFamily("foreshock_read_bytes", "Bytes read from checkpoints", labels=("run",))
    for label, each in progress.items():
        if each.latest_step is not None:
            latest.add_metric((label,), each.latest_step)
        if each.analyzed_step is not None:
            analyzed.add_metric((label,), each.analyzed_step)
        if each.analyzed_at is not None:
            moment.add_metric((label,), each.analyzed_at.timestamp())
        for state, count in each.counts.items():
            outcomes.add_metric((label, state.value), count)
        read.add_metric((label,), each.bytes_read)
    yield from (latest, analyzed, moment, outcomes, read)


def findings_family(found: Mapping[str, Iterable[StoredFinding]]) -> Metric:
    """How many findings each run has, by rule and severity.

    Args:
        found: by the run's label.
    """
    family = GaugeMetricFamily(
        "foreshock_findings", "Findings of the detectors", labels=("run", "rule", "severity")
    )
    for label, findings in found.items():
        counts = Counter((one_line(each.finding.rule), each.finding.severity) for each in findings)
        for (rule, severity), count in counts.items():
            family.add_metric((label, rule, severity), count)
    return family

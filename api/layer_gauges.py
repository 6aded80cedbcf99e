"""Which measurements Prometheus sees: one value a layer, and a few statistics over its heads.

Heads and experts stay out of labels, and so do steps: a model has thousands, and every one would be a
series for ever. `/metrics/{metric}` has them all.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.metrics_core import GaugeMetricFamily

from foreshock.api.text import one_line
from foreshock.storage.records import Sample, SeriesKey, kind_of

WHOLE = "matrix"
OVER_UNITS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "min": min,
    "median": statistics.median,
    "max": max,
}


@dataclass(frozen=True, slots=True)
class Exported:
    """A stored metric that is shown to Prometheus.

    Attributes:
        metric: its name in the catalogue.
        labels: beside `run`; those that are left out have one value only.
    """

    metric: str
    description: str
    labels: tuple[str, ...]

    @property
    def family(self) -> str:
        """Its name in Prometheus."""
        return "foreshock_" + self.metric.replace(".", "_")


EXPORTED: tuple[Exported, ...] = (
    Exported(
        "update.effective_rank",
        "Effective rank of the weight update since the checkpoint before",
        ("layer", "role", "stat"),
    ),
    Exported("update.persistence", "Cosine of two consecutive weight updates", ("layer", "role", "stat")),
    Exported(
        "update.relative_norm",
        "Norm of the weight update over the norm of the weight",
        ("layer", "role", "stat"),
    ),
    Exported(
        "update.resolution",
        "Norm of the weight update over the rounding noise of its dtype",
        ("layer", "role", "stat"),
    ),
    Exported(
        "qk_first_order.effective_rank",
        "Effective rank of the first-order change of the score operator",
        ("layer", "stat"),
    ),
    Exported("qk.logit_bound", "Largest singular value of the score operator, scaled", ("layer", "stat")),
    Exported(
        "router.conditioning",
        "Largest distance of a router row from the mean row, over its norm",
        ("layer",),
    ),
    Exported("router.similarity", "Mean cosine of two router rows", ("layer",)),
    Exported(
        "router.entropy_isotropic",
        "Routing entropy for isotropic inputs, from weights alone",
        ("layer",),
    ),
    Exported("training.loss", "Loss that the trainer logged", ()),
)

Gauge = tuple[Exported, tuple[str, ...], float]
"""A family, its labels' values without the run's, and the number."""


def gauges(latest: Iterable[tuple[SeriesKey, Sample]], step: int | None) -> tuple[Gauge, ...]:
    """What the newest samples of a run say; undefined values are left out.

    Args:
        latest: the newest sample of every series.
        step: the newest measured step. A sample of another step belongs to a series that stopped; only
            what the trainer logged has steps of its own.
    """
    samples = list(latest)
    return tuple(
        (exported, labels, value) for exported in EXPORTED for labels, value in _of(exported, samples, step)
    )


def _of(
    exported: Exported, samples: Sequence[tuple[SeriesKey, Sample]], step: int | None
) -> Iterator[tuple[tuple[str, ...], float]]:
    current = [
        (key, sample.value)
        for key, sample in samples
        if key.metric == exported.metric
        and sample.value is not None
        and (not exported.labels or sample.step == step)
    ]
    lag = min((key.lag for key, _ in current), default=0)
    groups: dict[tuple[str, str], list[tuple[SeriesKey, float]]] = {}
    for key, value in current:
        if key.lag == lag:
            layer = "" if key.layer is None else str(key.layer)
            groups.setdefault((layer, one_line(key.role)), []).append((key, value))
    for (layer, role), members in groups.items():
        for stat, value in _statistics(members):
            told = {"layer": layer, "role": role, "stat": stat}
            if "stat" in exported.labels or stat == WHOLE:
                yield tuple(told[label] for label in exported.labels), value


def _statistics(members: Iterable[tuple[SeriesKey, float]]) -> Iterator[tuple[str, float]]:
    """The whole matrix's value, and statistics of its units' finite values."""
    whole: list[float] = []
    units: list[float] = []
    for key, value in members:
        (units if key.unit else whole).append(value)
    if whole:
        yield WHOLE, whole[-1]
    finite = [value for value in units if kind_of(value) == "finite"]
    if finite:
        yield from ((stat, over(finite)) for stat, over in OVER_UNITS.items())


def families(by_run: Mapping[str, Iterable[Gauge]]) -> list[GaugeMetricFamily]:
    """The gauges of all runs, one family a metric, also for those that nobody has.

    Args:
        by_run: gauges by the run's label.
    """
    made = {
        exported.metric: GaugeMetricFamily(
            exported.family, exported.description, labels=("run", *exported.labels)
        )
        for exported in EXPORTED
    }
    for run, of_run in by_run.items():
        for exported, labels, value in of_run:
            made[exported.metric].add_metric((run, *labels), value)
    return list(made.values())

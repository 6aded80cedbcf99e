"""Every monitor. To add one: write one file with a `Monitor`, and name it in `MONITORS`."""

from __future__ import annotations

from foreshock.daemon.monitors.base import Monitor
from foreshock.daemon.monitors.integrity import Integrity
from foreshock.daemon.monitors.qk import LogitBound, QKIncrements
from foreshock.daemon.monitors.router import RouterBias, RouterConditioning
from foreshock.daemon.monitors.spectra import UpdateSpectra, WeightSpectra
from foreshock.daemon.monitors.updates import Persistence, UpdateSize
from foreshock.storage.records import Metric

MONITORS: tuple[Monitor, ...] = (
    Integrity(),
    UpdateSpectra(),
    WeightSpectra(),
    QKIncrements(),
    LogitBound(),
    UpdateSize(),
    Persistence(),
    RouterConditioning(),
    RouterBias(),
)

CATALOGUE: tuple[Metric, ...] = tuple(metric for monitor in MONITORS for metric in monitor.metrics)
"""What every number means."""

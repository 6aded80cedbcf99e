"""Every detector. To add one: write one file with a `Detector`, and name it in `DETECTORS`."""

from __future__ import annotations

from foreshock.daemon.detectors.base import Detector
from foreshock.daemon.detectors.rank_collapse import RankCollapse

DETECTORS: tuple[Detector, ...] = (RankCollapse(),)

"""Findings as log lines: the notifier that always works."""

from __future__ import annotations

import logging

from foreshock.daemon.alerts.base import Notifier
from foreshock.storage.records import StoredFinding

log = logging.getLogger(__name__)
_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "critical": logging.ERROR}


class LogNotifier(Notifier):
    """Writes the finding's sentence to the log, at the level of its severity."""

    name = "log"

    def send(self, stored: StoredFinding) -> None:
        """One line."""
        finding = stored.finding
        log.log(_LEVELS[finding.severity], "%s: %s: %s", stored.run, finding.rule, finding.message)

"""From the database to people: sent, then marked, so that a crash repeats and never loses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from foreshock.daemon.alerts.base import Notifier
from foreshock.storage.records import StoredFinding


class Outbox(Protocol):
    """Findings that were committed with the samples that caused them, until they are announced."""

    def unannounced(self, limit: int = 100) -> tuple[StoredFinding, ...]:
        """The oldest first."""
        ...

    def mark_announced(self, finding_id: int) -> None:
        """Every notifier took it."""
        ...


def deliver(outbox: Outbox, notifiers: Sequence[Notifier]) -> int:
    """Bring every waiting finding through every notifier; how many there were."""
    waiting = outbox.unannounced()
    for stored in waiting:
        for notifier in notifiers:
            notifier.send(stored)
        outbox.mark_announced(stored.id)
    return len(waiting)

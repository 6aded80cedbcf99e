"""What a store writes: each verb one transaction, committed and synced when it returns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from sqlalchemy import Connection

from foreshock.storage.database import Database
from foreshock.storage.queries import catalogue, ingest, ledger, runs, statuses
from foreshock.storage.queries.findings import insert_findings, mark_announced
from foreshock.storage.records import (
    Attempt,
    CheckpointRecord,
    CheckpointState,
    Finding,
    Metric,
    Run,
    Sample,
    Status,
)


class Writing:
    """Repeating a verb with the same arguments is harmless, but for `open_attempt`.

    All raise `ReadOnlyStore` where the store was opened for reading, other `StorageError`s where the
    database fails, and ValueError where a number does not fit into 64 bits.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def register_metrics(self, metrics: Iterable[Metric]) -> None:
        """Add or correct entries of the catalogue."""
        described = tuple(metrics)
        self._database.write(lambda connection: catalogue.register_metrics(connection, described))

    def ensure_run(self, name: str, path: str) -> Run:
        """The run of that name, made if need be, from now on at that path."""
        now = _now()
        return self._database.write(lambda connection: runs.ensure_run(connection, name, path, now))

    def open_attempt(self, run_id: int, first_step: int, reason: str) -> Attempt:
        """Begin the run's next attempt."""
        now = _now()
        return self._database.write(
            lambda connection: runs.open_attempt(
                connection, run_id, first_step=first_step, reason=reason, now=now
            )
        )

    def note_checkpoint(
        self,
        attempt_id: int,
        *,
        step: int,
        path: str,
        state: CheckpointState,
        reason: str = "",
        fingerprint: str = "",
        format: str = "",  # noqa: A002 - the record's own word
    ) -> None:
        """Write down what is known of a checkpoint; what was measured stays measured."""
        checkpoint = CheckpointRecord(0, step, path, state, reason, fingerprint, format)
        now = _now()
        self._database.write(lambda connection: ledger.note(connection, attempt_id, checkpoint, now))

    def record_measurement(
        self,
        attempt_id: int,
        checkpoint: CheckpointRecord,
        samples: Sequence[Sample],
        findings: Sequence[Finding] = (),
    ) -> None:
        """Write down a measured checkpoint, its samples and what they mean: all of it or nothing.

        Args:
            attempt_id: the attempt; the record's own ordinal is not looked at.
            checkpoint: in state MEASURED or PARTIAL.
            samples: those already there are left as they are.
            findings: those already there are left as they are.

        Raises:
            ValueError: another state, or a number that does not fit.
        """
        if checkpoint.state not in ledger.MEASURED_STATES:
            raise ValueError(f"a measurement cannot leave step {checkpoint.step} {checkpoint.state}")
        rows = ingest.prepared(samples)
        now = _now()

        def record(connection: Connection) -> None:
            ledger.note(connection, attempt_id, checkpoint, now)
            ingest.insert_samples(connection, attempt_id, rows)
            insert_findings(connection, attempt_id, findings, now)

        self._database.write(record)

    def mark_announced(self, finding_id: int) -> None:
        """Note that every notifier took a finding."""
        now = _now()
        self._database.write(lambda connection: mark_announced(connection, finding_id, now))

    def set_status(self, status: Status) -> None:
        """Put a component's word in the place of its last one."""
        self._database.write(lambda connection: statuses.set_status(connection, status))


def _now() -> datetime:
    return datetime.now(UTC)

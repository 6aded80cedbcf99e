"""Findings, and the outbox of those that nobody was told yet."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, cast

from sqlalchemy import Connection, Select, select, update

from foreshock.storage import values
from foreshock.storage.queries.insertion import insert_into
from foreshock.storage.records import Finding, Severity, StoredFinding
from foreshock.storage.tables import attempts, findings, runs


def insert_findings(connection: Connection, attempt_id: int, found: Sequence[Finding], now: datetime) -> None:
    """Insert the findings that are not there yet."""
    statement = insert_into(connection, findings).on_conflict_do_nothing()
    if found:
        connection.execute(statement, [_row(attempt_id, finding, now) for finding in found])


def select_findings(connection: Connection, run_id: int, limit: int) -> tuple[StoredFinding, ...]:
    """Of a run, the last written first."""
    question = _question().where(runs.c.id == run_id).order_by(findings.c.id.desc()).limit(limit)
    return tuple(_stored(row) for row in connection.execute(question))


def select_unannounced(connection: Connection, limit: int) -> tuple[StoredFinding, ...]:
    """Of every run, the first written first."""
    question = _question().where(findings.c.announced_at.is_(None)).order_by(findings.c.id).limit(limit)
    return tuple(_stored(row) for row in connection.execute(question))


def mark_announced(connection: Connection, finding_id: int, now: datetime) -> None:
    """Take a finding from the outbox; the first time counts."""
    waiting = (findings.c.id == finding_id, findings.c.announced_at.is_(None))
    connection.execute(update(findings).where(*waiting).values(announced_at=now))


def _question() -> Select[*tuple[Any, ...]]:
    return (
        select(runs.c.name.label("run"), attempts.c.ordinal, *findings.c)
        .join(attempts, attempts.c.id == findings.c.attempt_id)
        .join(runs, runs.c.id == attempts.c.run_id)
    )


def _row(attempt_id: int, finding: Finding, now: datetime) -> dict[str, object]:
    return {
        "attempt_id": attempt_id,
        "rule": values.name(finding.rule),
        "subject": values.name(finding.subject),
        "step": values.whole(finding.step, "a step"),
        "severity": values.text(finding.severity),
        "message": values.text(finding.message),
        "layer": None if finding.layer is None else values.whole(finding.layer, "a layer"),
        "evidence": values.plain(finding.evidence),
        "found_at": now,
        "announced_at": None,
    }


def _stored(row: Any) -> StoredFinding:
    finding = Finding(
        row.rule,
        row.subject,
        row.step,
        cast(Severity, row.severity),
        row.message,
        row.layer,
        row.evidence,
    )
    return StoredFinding(row.id, row.run, row.ordinal, finding, row.found_at, row.announced_at)

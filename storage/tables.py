"""The tables as this version knows them; `migrations/` is how a database comes to have them.

The columns of a series' unique key are never NULL, since NULLs are all different from each other: a
series outside of the blocks has layer -1.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    MetaData,
    Named,
    SmallInteger,
    Table,
    Text,
    TypedColumns,
    UniqueConstraint,
)

from foreshock.storage.column_types import IDENTITY, NAME, WHOLE, JsonText, UtcTime

OUTSIDE_BLOCKS = -1

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


class RunColumns(TypedColumns):
    """One checkpoint directory a row."""

    id: Named[int] = Column(IDENTITY, primary_key=True)
    name: Named[str] = Column(NAME, unique=True)
    path: Named[str] = Column(Text)
    created_at: Named[datetime] = Column(UtcTime)


class AttemptColumns(TypedColumns):
    """One stretch of a run without a step back a row."""

    id: Named[int] = Column(IDENTITY, primary_key=True)
    run_id: Named[int] = Column(WHOLE, ForeignKey("runs.id"))
    ordinal: Named[int] = Column(WHOLE)
    first_step: Named[int] = Column(WHOLE)
    opened_at: Named[datetime] = Column(UtcTime)
    reason: Named[str] = Column(Text)


class CheckpointColumns(TypedColumns):
    """The ledger: one checkpoint ever listed a row."""

    attempt_id: Named[int] = Column(WHOLE, ForeignKey("attempts.id"), primary_key=True)
    step: Named[int] = Column(WHOLE, primary_key=True, autoincrement=False)
    path: Named[str] = Column(Text)
    state: Named[str] = Column(Text)
    reason: Named[str] = Column(Text)
    fingerprint: Named[str] = Column(Text)
    format: Named[str] = Column(Text)
    seen_at: Named[datetime] = Column(UtcTime)
    settled_at: Named[datetime | None] = Column(UtcTime)
    bytes_read: Named[int] = Column(WHOLE)
    seconds: Named[float] = Column(Double)


class MetricColumns(TypedColumns):
    """The catalogue: what a number means."""

    name: Named[str] = Column(NAME, primary_key=True)
    description: Named[str] = Column(Text)
    unit: Named[str] = Column(Text)
    low: Named[float | None] = Column(Double)
    high: Named[float | None] = Column(Double)
    source: Named[str] = Column(Text)


class SeriesColumns(TypedColumns):
    """One key of an attempt a row."""

    id: Named[int] = Column(IDENTITY, primary_key=True)
    attempt_id: Named[int] = Column(WHOLE, ForeignKey("attempts.id"))
    metric: Named[str] = Column(NAME)
    role: Named[str] = Column(NAME)
    lag: Named[int] = Column(WHOLE)
    layer: Named[int] = Column(WHOLE)
    parameter: Named[str] = Column(NAME)
    unit: Named[str] = Column(NAME)


class SampleColumns(TypedColumns):
    """One number a row; clustered by series, which is how they are read."""

    series_id: Named[int] = Column(WHOLE, ForeignKey("series.id"), primary_key=True)
    step: Named[int] = Column(WHOLE, primary_key=True, autoincrement=False)
    base_step: Named[int | None] = Column(WHOLE)
    value: Named[float | None] = Column(Double)
    kind: Named[int] = Column(SmallInteger)
    reason: Named[str] = Column(Text)


class FindingColumns(TypedColumns):
    """One verdict a row; those without `announced_at` are the outbox."""

    id: Named[int] = Column(IDENTITY, primary_key=True)
    attempt_id: Named[int] = Column(WHOLE, ForeignKey("attempts.id"))
    rule: Named[str] = Column(NAME)
    subject: Named[str] = Column(NAME)
    step: Named[int] = Column(WHOLE)
    severity: Named[str] = Column(Text)
    message: Named[str] = Column(Text)
    layer: Named[int | None] = Column(WHOLE)
    evidence: Named[dict[str, Any]] = Column(JsonText)
    found_at: Named[datetime] = Column(UtcTime)
    announced_at: Named[datetime | None] = Column(UtcTime)


class StatusColumns(TypedColumns):
    """What a component last said of itself."""

    component: Named[str] = Column(NAME, primary_key=True)
    updated_at: Named[datetime] = Column(UtcTime)
    healthy: Named[bool]
    detail: Named[dict[str, Any]] = Column(JsonText)


runs = Table("runs", metadata, RunColumns)
attempts = Table("attempts", metadata, AttemptColumns, UniqueConstraint("run_id", "ordinal"))
checkpoints = Table("checkpoints", metadata, CheckpointColumns)
metrics = Table("metrics", metadata, MetricColumns)
series = Table(
    "series",
    metadata,
    SeriesColumns,
    UniqueConstraint("attempt_id", "metric", "role", "lag", "layer", "parameter", "unit"),
)
samples = Table(
    "samples",
    metadata,
    SampleColumns,
    CheckConstraint("(value IS NULL) = (kind IN (1, 2, 3, 4))", name="value_or_kind"),
    sqlite_with_rowid=False,
)
findings = Table(
    "findings",
    metadata,
    FindingColumns,
    UniqueConstraint("attempt_id", "rule", "subject", "step"),
)
status = Table("status", metadata, StatusColumns)

Index(
    "ix_findings_unannounced",
    findings.c.id,
    sqlite_where=findings.c.announced_at.is_(None),
    postgresql_where=findings.c.announced_at.is_(None),
)

"""The catalogue: what the numbers mean."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, select

from foreshock.storage import values
from foreshock.storage.queries.insertion import insert_into
from foreshock.storage.records import Metric
from foreshock.storage.tables import metrics

DESCRIBING = ("description", "unit", "low", "high", "source")


def register_metrics(connection: Connection, described: Iterable[Metric]) -> None:
    """Add or correct entries; others stay, as their samples do."""
    rows = [_row(metric) for metric in described]
    insertion = insert_into(connection, metrics)
    corrected = {column: insertion.excluded[column] for column in DESCRIBING}
    if rows:
        connection.execute(
            insertion.on_conflict_do_update(index_elements=[metrics.c.name], set_=corrected), rows
        )


def all_metrics(connection: Connection) -> tuple[Metric, ...]:
    """Every entry, by name."""
    return tuple(Metric(*row) for row in connection.execute(select(metrics).order_by(metrics.c.name)))


def _row(metric: Metric) -> dict[str, object]:
    return {
        "name": values.name(metric.name),
        "description": values.text(metric.description),
        "unit": values.text(metric.unit),
        "low": values.real(metric.low),
        "high": values.real(metric.high),
        "source": values.text(metric.source),
    }

"""Samples on their way in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, select

from foreshock.storage import values
from foreshock.storage.queries.insertion import insert_into
from foreshock.storage.records import Sample, SeriesKey
from foreshock.storage.tables import OUTSIDE_BLOCKS, samples, series

ROWS_PER_STATEMENT = 5_000

Key = tuple[str, str, int, int, str, str]
"""Metric, role, lag, layer, parameter, unit: what is read together sorts together."""

KEY_COLUMNS = ("metric", "role", "lag", "layer", "parameter", "unit")


@dataclass(frozen=True, slots=True)
class Row:
    """A sample in plain values, ready but for the number of its series."""

    key: Key
    step: int
    base_step: int | None
    value: float | None
    kind: int
    reason: str


def prepared(given: Iterable[Sample]) -> tuple[Row, ...]:
    """The samples as plain values, in the order in which the database lays them down.

    Raises:
        ValueError: a step, lag or layer is outside of what the database holds.
    """
    return tuple(sorted(map(_row, given), key=lambda row: (row.key, row.step)))


def insert_samples(connection: Connection, attempt_id: int, rows: Sequence[Row]) -> None:
    """Insert the rows that are not there yet, and the series that they need."""
    numbers = _series_numbers(connection, attempt_id, {row.key for row in rows})
    statement = insert_into(connection, samples).on_conflict_do_nothing()
    for batch in _batches(rows):
        connection.execute(statement, [_columns(row, numbers[row.key]) for row in batch])


def _series_numbers(connection: Connection, attempt_id: int, keys: set[Key]) -> dict[Key, int]:
    known = _known_series(connection, attempt_id)
    missing = [dict(zip(KEY_COLUMNS, key, strict=True)) for key in sorted(keys - known.keys())]
    if not missing:
        return known
    statement = insert_into(connection, series).on_conflict_do_nothing()
    connection.execute(statement, [{"attempt_id": attempt_id, **columns} for columns in missing])
    return _known_series(connection, attempt_id)


def _known_series(connection: Connection, attempt_id: int) -> dict[Key, int]:
    columns = [series.c[name] for name in KEY_COLUMNS]
    question = select(series.c.id, *columns).where(series.c.attempt_id == attempt_id)
    return {tuple(key): number for number, *key in connection.execute(question)}


def _row(sample: Sample) -> Row:
    value, kind = values.encoded(sample.value)
    return Row(
        key=_key(sample.key),
        step=values.whole(sample.step, "a step"),
        base_step=None if sample.base_step is None else values.whole(sample.base_step, "a step"),
        value=value,
        kind=kind,
        reason=values.text(sample.reason),
    )


def _key(key: SeriesKey) -> Key:
    layer = OUTSIDE_BLOCKS if key.layer is None else values.whole(key.layer, "a layer")
    if key.layer is not None and layer < 0:
        raise ValueError(f"layer {layer} of {values.text(key.metric)}: layers count from 0")
    return (
        values.name(key.metric),
        values.name(key.role),
        values.whole(key.lag, "a lag"),
        layer,
        values.name(key.parameter),
        values.name(key.unit),
    )


def _columns(row: Row, series_id: int) -> dict[str, object]:
    return {
        "series_id": series_id,
        "step": row.step,
        "base_step": row.base_step,
        "value": row.value,
        "kind": row.kind,
        "reason": row.reason,
    }


def _batches(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    for begin in range(0, len(rows), ROWS_PER_STATEMENT):
        yield rows[begin : begin + ROWS_PER_STATEMENT]

"""The ledger: what became of every checkpoint."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, case, func, select

from foreshock.storage import values
from foreshock.storage.queries.insertion import insert_into
from foreshock.storage.records import CheckpointRecord, CheckpointState
from foreshock.storage.tables import attempts, checkpoints

MEASURED_STATES = frozenset({CheckpointState.MEASURED, CheckpointState.PARTIAL})


def note(connection: Connection, attempt_id: int, checkpoint: CheckpointRecord, now: datetime) -> None:
    """Write down what is known of a checkpoint, unless more is known of it already.

    A partial row is never taken back to one without samples, nor a measured row to a partial one. An
    unknown fingerprint or format does not erase a known one.
    """
    insertion = insert_into(connection, checkpoints)
    new, old = insertion.excluded, checkpoints.c
    changes: dict[str, Any] = {
        "path": new.path,
        "state": new.state,
        "reason": new.reason,
        "fingerprint": func.coalesce(func.nullif(new.fingerprint, ""), old.fingerprint),
        "format": func.coalesce(func.nullif(new.format, ""), old.format),
        "settled_at": case(
            (new.state == old.state, func.coalesce(old.settled_at, new.settled_at)), else_=new.settled_at
        ),
    }
    if checkpoint.state in MEASURED_STATES:
        changes |= {"bytes_read": new.bytes_read, "seconds": new.seconds}
    connection.execute(
        insertion.values(_row(attempt_id, checkpoint, now)).on_conflict_do_update(
            index_elements=[old.attempt_id, old.step],
            set_=changes,
            where=_rank(new.state) >= _rank(old.state),
        )
    )


def select_checkpoints(
    connection: Connection, run_id: int, *, ordinal: int | None, limit: int | None
) -> tuple[CheckpointRecord, ...]:
    """The newest checkpoints of a run, or of one attempt, by attempt and step."""
    columns = list(checkpoints.c)[1:]  # the attempt is told by its ordinal
    question = (
        select(attempts.c.ordinal, *columns)
        .join(attempts, attempts.c.id == checkpoints.c.attempt_id)
        .where(attempts.c.run_id == run_id)
        .order_by(attempts.c.ordinal.desc(), checkpoints.c.step.desc())
        .limit(limit)
    )
    if ordinal is not None:
        question = question.where(attempts.c.ordinal == values.nearest_whole(ordinal))
    rows = connection.execute(question).all()
    return tuple(_record(*row) for row in reversed(rows))


def _rank(state: ColumnElement[str]) -> ColumnElement[int]:
    return case(
        (state == CheckpointState.MEASURED.value, 2), (state == CheckpointState.PARTIAL.value, 1), else_=0
    )


def _row(attempt_id: int, checkpoint: CheckpointRecord, now: datetime) -> dict[str, object]:
    settled = checkpoint.state is not CheckpointState.PENDING
    return {
        "attempt_id": attempt_id,
        "step": values.whole(checkpoint.step, "a step"),
        "path": values.text(checkpoint.path),
        "state": CheckpointState(checkpoint.state).value,
        "reason": values.text(checkpoint.reason),
        "fingerprint": values.text(checkpoint.fingerprint),
        "format": values.text(checkpoint.format),
        "seen_at": values.moment(checkpoint.seen_at or now),
        "settled_at": values.moment(checkpoint.settled_at or now) if settled else None,
        "bytes_read": values.whole(checkpoint.bytes_read, "a count of bytes"),
        "seconds": values.real(checkpoint.seconds),
    }


def _record(ordinal: int, step: int, path: str, state: str, *rest: Any) -> CheckpointRecord:
    return CheckpointRecord(ordinal, step, path, CheckpointState(state), *rest)

"""Runs and their attempts."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, func, select

from foreshock.storage import values
from foreshock.storage.queries.insertion import insert_into
from foreshock.storage.records import Attempt, Run
from foreshock.storage.tables import attempts, runs


def ensure_run(connection: Connection, name: str, path: str, now: datetime) -> Run:
    """The run of that name, made if need be, with that path."""
    insertion = insert_into(connection, runs)
    connection.execute(
        insertion.values(
            name=values.name(name), path=values.text(path), created_at=now
        ).on_conflict_do_update(index_elements=[runs.c.name], set_={"path": insertion.excluded.path})
    )
    run = run_named(connection, name)
    assert run is not None
    return run


def run_named(connection: Connection, name: str) -> Run | None:
    """The run of that name."""
    row = connection.execute(select(runs).where(runs.c.name == values.name(name))).one_or_none()
    return None if row is None else Run(*row)


def all_runs(connection: Connection) -> tuple[Run, ...]:
    """Every run, the oldest first."""
    return tuple(Run(*row) for row in connection.execute(select(runs).order_by(runs.c.id)))


def attempts_of(connection: Connection, run_id: int) -> tuple[Attempt, ...]:
    """Every attempt of a run, in order."""
    question = select(attempts).where(attempts.c.run_id == run_id).order_by(attempts.c.ordinal)
    return tuple(Attempt(*row) for row in connection.execute(question))


def find_attempt(connection: Connection, run_id: int, ordinal: int | None) -> Attempt | None:
    """The attempt with that ordinal, the latest for None."""
    question = select(attempts).where(attempts.c.run_id == run_id)
    if ordinal is not None:
        question = question.where(attempts.c.ordinal == values.nearest_whole(ordinal))
    row = connection.execute(question.order_by(attempts.c.ordinal.desc()).limit(1)).one_or_none()
    return None if row is None else Attempt(*row)


def open_attempt(
    connection: Connection, run_id: int, *, first_step: int, reason: str, now: datetime
) -> Attempt:
    """Open the run's next attempt; one that was opened at the very same moment is this one, repeated."""
    connection.execute(select(runs.c.id).where(runs.c.id == run_id).with_for_update())
    same = select(attempts).where(attempts.c.run_id == run_id, attempts.c.opened_at == now)
    row = connection.execute(same).one_or_none()
    if row is not None:
        return Attempt(*row)
    highest = select(func.max(attempts.c.ordinal)).where(attempts.c.run_id == run_id)
    connection.execute(
        attempts.insert().values(
            run_id=run_id,
            ordinal=(connection.scalar(highest) or 0) + 1,
            first_step=values.whole(first_step, "a step"),
            opened_at=now,
            reason=values.text(reason),
        )
    )
    return Attempt(*connection.execute(same).one())

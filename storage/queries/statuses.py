"""What components last said of themselves."""

from __future__ import annotations

from sqlalchemy import Connection, select

from foreshock.storage import values
from foreshock.storage.queries.insertion import insert_into
from foreshock.storage.records import Status
from foreshock.storage.tables import status


def set_status(connection: Connection, said: Status) -> None:
    """Put a component's word in the place of its last one."""
    insertion = insert_into(connection, status)
    new = insertion.excluded
    connection.execute(
        insertion.values(
            component=values.name(said.component),
            updated_at=values.moment(said.updated_at),
            healthy=bool(said.healthy),
            detail=values.plain(said.detail),
        ).on_conflict_do_update(
            index_elements=[status.c.component],
            set_={"updated_at": new.updated_at, "healthy": new.healthy, "detail": new.detail},
        )
    )


def all_statuses(connection: Connection) -> tuple[Status, ...]:
    """Every component's last word, by name."""
    return tuple(Status(*row) for row in connection.execute(select(status).order_by(status.c.component)))

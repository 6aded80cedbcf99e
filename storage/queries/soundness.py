"""Is the database what it should be? And how large?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, ForeignKey, exists, func, select, text

from foreshock.storage.migrate import Schema, schema_of
from foreshock.storage.tables import metadata

MAX_PROBLEMS = 100


def problems(connection: Connection) -> tuple[str, ...]:
    """Everything that is wrong, a sentence each; reads the whole database.

    Where bytes are damaged, nothing else is asked.
    """
    return tuple(_damage(connection)) or (*_wrong_schema(connection), *_orphans(connection))


def server_size_bytes(connection: Connection) -> int | None:
    """Of the whole database in PostgreSQL; None elsewhere."""
    if connection.dialect.name != "postgresql":
        return None
    return int(connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one())


def _damage(connection: Connection) -> Iterator[str]:
    if connection.dialect.name == "sqlite":
        for (said,) in connection.exec_driver_sql(f"PRAGMA integrity_check({MAX_PROBLEMS})"):
            if said != "ok":
                yield f"damage: {said}"


def _wrong_schema(connection: Connection) -> Iterator[str]:
    schema = schema_of(connection)
    if schema is not Schema.CURRENT:
        yield f"the schema is not that of this version: {schema.name.lower()}"


def _orphans(connection: Connection) -> Iterator[str]:
    for table in metadata.sorted_tables:
        for key in table.foreign_keys:
            count = _count_orphans(connection, key)
            if count:
                yield f"{count} rows of {table.name} belong to no row of {key.column.table.name}"


def _count_orphans(connection: Connection, key: ForeignKey) -> int:
    child: Any = key.parent
    owner = select(key.column).where(key.column == child)
    return connection.scalar(select(func.count()).select_from(child.table).where(~exists(owner))) or 0

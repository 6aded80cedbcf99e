"""INSERT … ON CONFLICT, which both back ends spell alike and SQLAlchemy keeps apart."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite

Insertion = sqlite.Insert | postgresql.Insert


def insert_into(connection: Connection, table: Table[Any]) -> Insertion:
    """An insert that can say what happens when the row is already there."""
    if connection.dialect.name == "postgresql":
        return postgresql.insert(table)
    return sqlite.insert(table)

"""What a driver's error means: try again, wait, restore, or read the message."""

from __future__ import annotations

import sqlite3

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from foreshock.storage.errors import (
    DamagedDatabase,
    DatabaseUnavailable,
    RefusedByDatabase,
    StorageError,
)

SQLITE_TRANSIENT = frozenset(
    {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PROTOCOL}
)
SQLITE_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})

POSTGRESQL_TRANSIENT = ("08", "40", "53", "55P03", "57P")
"""Beginnings of SQLSTATEs: connection, serialization, resources, lock, shutdown."""


def is_transient(error: DBAPIError) -> bool:
    """Whether the same transaction may succeed on a fresh connection."""
    if isinstance(error.orig, sqlite3.Error):
        return _sqlite_code(error.orig) in SQLITE_TRANSIENT
    if error.connection_invalidated:
        return True
    state = getattr(error.orig, "sqlstate", None)
    if state is None:  # there was no server to give one
        return isinstance(error, OperationalError | InterfaceError)
    return str(state).startswith(POSTGRESQL_TRANSIENT)


def translated(error: DBAPIError | PoolTimeout, place: str) -> StorageError:
    """The error that callers see.

    Args:
        place: path or URL of the database, without a password.
    """
    if not isinstance(error, DBAPIError):
        return DatabaseUnavailable(f"{place}: all connections are in use")
    said = str(error.orig).strip().partition("\n")[0]
    return _kind(error)(f"{place}: {said}")


def _kind(error: DBAPIError) -> type[StorageError]:
    if isinstance(error.orig, sqlite3.Error) and _sqlite_code(error.orig) in SQLITE_DAMAGED:
        return DamagedDatabase
    if isinstance(error, OperationalError | InterfaceError) or is_transient(error):
        return DatabaseUnavailable
    return RefusedByDatabase


def _sqlite_code(error: sqlite3.Error) -> int:
    """The primary code; the bits above tell details apart. Errors of the module itself have none."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF

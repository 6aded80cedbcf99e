"""From a URL to an engine: SQLite through its standard module, PostgreSQL through psycopg 3.

Transactions begin as the execution option `BEGIN` says (SQLite): the driver's own rule, to begin at the
first write, would let a transaction that has read fail when it comes to write.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import sqlalchemy
from sqlalchemy import Connection, Engine, QueuePool, event, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.pool import ConnectionPoolEntry

from foreshock.storage.errors import BadDatabaseUrl, DatabaseUnavailable
from foreshock.storage.journal import Journal

BEGIN = "foreshock_begin"
"""Execution option: `DEFERRED` (the default), `IMMEDIATE`, or `MIGRATION`."""

BUSY_TIMEOUT_SECONDS = 30.0
POOL_TIMEOUT_SECONDS = 15.0
CONNECTIONS = 4
"""Kept open; so many more are opened under load."""

SQLITE_DRIVERS = frozenset({"sqlite", "sqlite+pysqlite"})
POSTGRESQL_DRIVERS = frozenset({"postgres", "postgresql", "postgresql+psycopg"})


def parse_url(text: str) -> sqlalchemy.URL:
    """The URL, with its driver named.

    Raises:
        BadDatabaseUrl: it cannot be understood, or is of another database.
    """
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise BadDatabaseUrl("the database URL cannot be understood; an example: sqlite:////a/path") from None
    if url.drivername in SQLITE_DRIVERS:
        if not url.database or url.database == ":memory:" or url.query or url.host:
            raise BadDatabaseUrl("a SQLite URL holds the path of a file and nothing else: sqlite:////a/path")
        return url.set(drivername="sqlite+pysqlite")
    if url.drivername in POSTGRESQL_DRIVERS:
        return url.set(drivername="postgresql+psycopg")
    raise BadDatabaseUrl(f"{url.drivername} is not supported: use sqlite or postgresql")


def sqlite_engine(path: Path, journal: Journal, *, read_only: bool) -> Engine:
    """An engine on an existing file; it never makes one, not even when the file is gone later."""
    uri = f"file:{quote(bytes(path))}?mode=rw"

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(
            uri, uri=True, timeout=BUSY_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False
        )

    engine = _engine(sqlalchemy.URL.create("sqlite+pysqlite", database=str(path)), creator=connect)
    event.listen(engine, "connect", _prepare(journal, read_only=read_only))
    event.listen(engine, "begin", _begin)
    return engine


def postgresql_engine(url: sqlalchemy.URL) -> Engine:
    """An engine that notices a dead server within half a minute.

    Raises:
        BadDatabaseUrl: psycopg is not installed.
    """
    patience = {"connect_timeout": 10, "tcp_user_timeout": 30_000, "application_name": "foreshock"}
    unsaid = {option: value for option, value in patience.items() if option not in url.query}
    try:
        return _engine(url, connect_args=unsaid)
    except (ModuleNotFoundError, NoSuchModuleError) as error:
        raise BadDatabaseUrl("PostgreSQL needs the package psycopg: pip install 'psycopg[binary]'") from error


def _engine(url: sqlalchemy.URL, **arguments: object) -> Engine:
    return sqlalchemy.create_engine(
        url,
        poolclass=QueuePool,
        pool_size=CONNECTIONS,
        max_overflow=CONNECTIONS,
        pool_timeout=POOL_TIMEOUT_SECONDS,
        pool_pre_ping=True,
        hide_parameters=True,
        **arguments,
    )


def _prepare(
    journal: Journal, *, read_only: bool
) -> Callable[[sqlite3.Connection, ConnectionPoolEntry], None]:
    def prepare(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
        connection.execute("PRAGMA foreign_keys = ON")
        if read_only:
            connection.execute("PRAGMA query_only = ON")
            return
        (mode,) = connection.execute(f"PRAGMA journal_mode = {journal.mode}").fetchone()
        if mode == "wal" and journal.mode != "wal":
            raise DatabaseUnavailable(
                f"the database is open elsewhere with a write-ahead log, which is not safe with SQLite"
                f" {sqlite3.sqlite_version} here; stop the other process first"
            )
        connection.execute(f"PRAGMA synchronous = {journal.synchronous}")
        # Spilling a large transaction would lock readers out until it ends.
        connection.execute("PRAGMA cache_spill = OFF")

    return prepare


def _begin(connection: Connection) -> None:
    mode = connection.get_execution_options().get(BEGIN, "DEFERRED")
    if mode == "MIGRATION":
        # Rebuilding a table drops it; the setting cannot change inside of a transaction.
        connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
        mode = "IMMEDIATE"
    connection.exec_driver_sql(f"BEGIN {mode}")

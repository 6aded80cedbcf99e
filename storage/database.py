"""One database: transactions that either happened or raise a `StorageError`."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from foreshock.storage.engine import BEGIN, parse_url, postgresql_engine, sqlite_engine
from foreshock.storage.errors import ReadOnlyStore
from foreshock.storage.failures import is_transient, translated
from foreshock.storage.journal import filesystem_of, journal_for
from foreshock.storage.sqlite_file import SqliteFile, open_file

log = logging.getLogger(__name__)

T = TypeVar("T")
Work = Callable[[Connection], T]
"""What happens in one transaction; it may be run more than once."""

RETRY_DELAYS_SECONDS = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
PATIENCE_SECONDS = 60.0
"""After which no further try is begun: each may itself wait for a lock."""


class Database:
    """An open database; to be used from any number of threads.

    Args:
        read_only: refuse every write.
        create: make the file of a SQLite database where there is none.

    Raises:
        BadDatabaseUrl: the URL is wrong.
        DatabaseUnavailable: the file is not there, or cannot be made.
    """

    def __init__(self, url: str, *, read_only: bool, create: bool = False) -> None:
        parsed = parse_url(url)
        self.read_only = read_only
        self.file: SqliteFile | None = None
        if parsed.database is not None and parsed.get_backend_name() == "sqlite":
            self.file = open_file(Path(parsed.database).expanduser().absolute(), create=create)
            self.place = str(self.file.path)
            journal = journal_for(sqlite3.sqlite_version_info[:3], filesystem_of(self.file.path))
            self._engine = sqlite_engine(self.file.path, journal, read_only=read_only)
            self._reader = self._engine
        else:
            self.place = parsed.render_as_string(hide_password=True)
            self._engine = postgresql_engine(parsed)
            self._reader = self._engine.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )
        self._writer = self._engine.execution_options(**{BEGIN: "IMMEDIATE"})
        self._one_writer = threading.Lock()

    def read(self, work: Work[T]) -> T:
        """Run work on one consistent state of the database.

        Raises:
            DatabaseUnavailable: it cannot be reached, or its file is no longer the one opened.
        """
        with self._translating():
            return self._transaction(self._reader, work)

    def write(self, work: Work[T]) -> T:
        """Run work in one transaction, again from the start where trying again can help.

        Work must be harmless to repeat even when it was committed: the server's answer to a commit
        can be lost.

        Raises:
            ReadOnlyStore: the database was opened for reading.
            DatabaseUnavailable: it did not happen, or its file is no longer the one opened.
        """
        if self.read_only:
            raise ReadOnlyStore(f"{self.place} is open for reading only")
        with self._one_writer, self._translating():
            return self._persistently(lambda: self._transaction(self._writer, work))

    def migrate(self, work: Work[T]) -> T:
        """Run work, which may rebuild tables, in one transaction that nobody else writes in."""
        migrating = self._engine.execution_options(**{BEGIN: "MIGRATION"})
        try:
            with self._one_writer, self._translating():
                return self._transaction(migrating, work)
        finally:
            self._engine.dispose()  # its connections do not enforce foreign keys any more

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()

    def _transaction(self, engine: Engine, work: Work[T]) -> T:
        if self.file is not None:
            self.file.verify()
        with engine.connect() as connection:
            try:
                with connection.begin():
                    result = work(connection)
            except DBAPIError:
                connection.invalidate()  # whatever is wrong with it, the next try gets another
                raise
        if self.file is not None:
            self.file.verify()  # or the commit went into a file that nobody will find
        return result

    def _persistently(self, attempt: Callable[[], T]) -> T:
        began = time.monotonic()
        for delay in RETRY_DELAYS_SECONDS:
            try:
                return attempt()
            except DBAPIError as error:
                if not is_transient(error) or time.monotonic() - began > PATIENCE_SECONDS:
                    raise
                log.warning("%s; trying again in %.1f s", translated(error, self.place), delay)
            time.sleep(delay)
        return attempt()

    @contextmanager
    def _translating(self) -> Iterator[None]:
        try:
            yield
        except (DBAPIError, PoolTimeout) as error:
            raise translated(error, self.place) from error

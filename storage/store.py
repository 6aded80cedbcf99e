"""The time series, as everybody else knows them: open a store, ask it, tell it.

with Store.open("sqlite:////var/lib/foreshock/foreshock.sqlite") as store:
    run = store.ensure_run("llama", "/checkpoints/llama")
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from foreshock.storage.database import Database
from foreshock.storage.errors import DamagedDatabase
from foreshock.storage.migrate import prepare_schema
from foreshock.storage.queries import soundness
from foreshock.storage.reading import Reading
from foreshock.storage.writing import Writing


class Store(Reading, Writing):
    """An open database; to be used from any number of threads. Make one with `Store.open`."""

    @classmethod
    def open(cls, url: str, *, migrate: bool = True, read_only: bool = False) -> Self:
        """Open the database at a URL.

        Args:
            url: `sqlite:////a/path` or `postgresql://…`.
            migrate: bring the schema up to date; a SQLite file is made if need be.
            read_only: never write, nor migrate.

        Raises:
            SchemaTooNew: a newer version has migrated it; nothing was written.
            SchemaTooOld: it must be migrated, and this was not allowed.
            StorageError: it cannot be opened.
        """
        may_migrate = migrate and not read_only
        database = Database(url, read_only=read_only, create=may_migrate)
        try:
            prepare_schema(database, migrate=may_migrate)
        except BaseException:
            database.close()
            raise
        return cls(database)

    def check(self) -> tuple[str, ...]:
        """What is wrong with the database, a sentence each; empty when it is sound. Reads all of it."""
        try:
            return self._database.read(soundness.problems)
        except DamagedDatabase as error:
            return (str(error),)

    def size_bytes(self) -> int | None:
        """How much room the database takes."""
        if self._database.file is not None:
            return self._database.file.size_bytes()
        return self._database.read(soundness.server_size_bytes)

    def close(self) -> None:
        """Close every connection; the store cannot be used any more."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

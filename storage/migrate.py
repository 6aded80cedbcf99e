"""Bring a database to the schema of this version, all steps in one transaction.

Both back ends undo half a migration by themselves: it may be killed at any statement and run again.
"""

from __future__ import annotations

import logging
import threading
from enum import Enum, auto

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text

from foreshock.storage.database import Database
from foreshock.storage.errors import ForeignDatabase, SchemaTooNew, SchemaTooOld
from foreshock.storage.tables import metadata

SCRIPTS = "foreshock.storage:migrations"
VERSION_TABLE = "foreshock_schema"

_ADVISORY_LOCK = 0x666F7265
"""Held in PostgreSQL while migrating, so that two of us do not; the number is our own."""

_ONE_THREAD = threading.Lock()
"""Alembic keeps the migration that runs in a global variable."""

logging.getLogger("alembic").setLevel(logging.WARNING)  # it reports every look at the version


class Schema(Enum):
    """How a database's schema relates to this version's."""

    EMPTY = auto()
    FOREIGN = auto()
    OLD = auto()
    CURRENT = auto()
    NEW = auto()


def prepare_schema(database: Database, *, migrate: bool) -> None:
    """See to it that the schema is this version's.

    Raises:
        SchemaTooNew: a newer version made it; nothing is written.
        SchemaTooOld: it must be migrated, and `migrate` is false.
        ForeignDatabase: there are tables of our names without our version.
    """
    schema = database.read(schema_of)
    if schema is Schema.NEW:
        raise SchemaTooNew(f"{database.place} was made by a newer version of foreshock; upgrade this one")
    if schema is Schema.FOREIGN:
        raise ForeignDatabase(f"{database.place} holds tables that foreshock did not make")
    if schema is Schema.CURRENT:
        return
    if not migrate:
        what = "has no schema yet" if schema is Schema.EMPTY else "has the schema of an older version"
        raise SchemaTooOld(f"{database.place} {what}; run `foreshock db upgrade`")
    database.migrate(_upgrade)


def schema_of(connection: Connection) -> Schema:
    """Compare the revision that the database is stamped with to those that are known here."""
    stamped = MigrationContext.configure(
        connection, opts={"version_table": VERSION_TABLE}
    ).get_current_heads()
    if not stamped:
        ours = metadata.tables.keys() & set(inspect(connection).get_table_names())
        return Schema.FOREIGN if ours else Schema.EMPTY
    scripts = ScriptDirectory.from_config(configuration())
    if set(stamped) == set(scripts.get_heads()):
        return Schema.CURRENT
    known = {script.revision for script in scripts.walk_revisions()}
    return Schema.OLD if known.issuperset(stamped) else Schema.NEW


def configuration(connection: Connection | None = None) -> Config:
    """What alembic reads from a file elsewhere; the scripts lie in this package."""
    config = Config()
    config.set_main_option("script_location", SCRIPTS)
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def _upgrade(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _ADVISORY_LOCK})
    with _ONE_THREAD:
        command.upgrade(configuration(connection), "head")

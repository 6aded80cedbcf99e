"""Run by alembic for every command; the connection, inside of a transaction, is handed over by the caller.

A new revision, after `tables.py` was changed, from a checkout with a database of the previous schema:

    from alembic import command
    from foreshock.storage.database import Database
    from foreshock.storage.migrate import configuration

    Database(url, read_only=False).migrate(
        lambda connection: command.revision(configuration(connection), "Add a table", autogenerate=True)
    )
"""

from __future__ import annotations

from alembic import context

from foreshock.storage.migrate import VERSION_TABLE
from foreshock.storage.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()

"""The migrations lead to the tables, also with rows in them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import inspect

from foreshock.storage import migrate, migrations
from foreshock.storage.database import Database
from foreshock.storage.errors import SchemaTooOld
from foreshock.storage.migrate import VERSION_TABLE, configuration
from foreshock.storage.store import Store
from foreshock.storage.tables import metadata

NEXT = """
import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

def upgrade() -> None:
    with op.batch_alter_table("series") as batch:  # which SQLite can only build anew
        batch.alter_column("unit", server_default="")
        batch.add_column(sa.Column("note", sa.Text(), nullable=False, server_default=""))
"""


def compared(connection):
    return compare_metadata(
        MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE}), metadata
    )


def test_the_migrations_make_the_tables_that_the_code_knows(store):
    assert store._database.read(compared) == []
    made = store._database.read(lambda connection: set(inspect(connection).get_table_names()))
    assert made == {*metadata.tables, VERSION_TABLE}


def test_checks_and_layout_are_made_as_declared(sqlite_store):
    """What the comparison does not look at."""
    statement = "SELECT sql FROM sqlite_master WHERE name = 'samples'"
    made = sqlite_store._database.read(lambda connection: connection.exec_driver_sql(statement).scalar_one())
    assert "WITHOUT ROWID" in made
    assert "CHECK ((value IS NULL) = (kind IN (1, 2, 3, 4)))" in made


def test_going_down_removes_every_table(database_url):
    Store.open(database_url).close()
    database = Database(database_url, read_only=False)
    database.migrate(lambda connection: command.downgrade(configuration(connection), "base"))
    left = database.read(lambda connection: inspect(connection).get_table_names())
    database.close()
    assert left == [VERSION_TABLE]
    Store.open(database_url).close()


@pytest.fixture
def next_version(tmp_path, monkeypatch):
    """Pretend that this is a version with one migration more."""
    scripts = tmp_path / "scripts"
    shutil.copytree(Path(migrations.__path__[0]), scripts, ignore=shutil.ignore_patterns("__pycache__"))
    (scripts / "versions" / "0002_next.py").write_text(NEXT)

    def upgrade():
        monkeypatch.setattr(migrate, "SCRIPTS", str(scripts))

    return upgrade


def test_a_table_that_others_refer_to_is_rebuilt_with_its_rows(database_url, next_version, measured, sample):
    with Store.open(database_url) as store:
        run = store.ensure_run("r", "/r")
        attempt = store.open_attempt(run.id, 0, "")
        store.record_measurement(attempt.id, measured(1), [sample(1, 1.0, lag=lag) for lag in range(5)])
        before = store.series(run.id, "update.effective_rank")

    next_version()
    with pytest.raises(SchemaTooOld, match=r"older version; run `foreshock db upgrade`"):
        Store.open(database_url, migrate=False)
    with Store.open(database_url) as store:
        assert store.series(run.id, "update.effective_rank") == before
        assert store.check() == ()
        store.record_measurement(attempt.id, measured(2), [sample(2, 1.0)])
        assert store._database.read(compared)[0][0] == "remove_column"


def test_a_new_revision_can_be_written(tmp_path, database_url, next_version):
    next_version()
    Store.open(database_url).close()
    database = Database(database_url, read_only=False)
    script = database.migrate(
        lambda connection: command.revision(
            configuration(connection), "Remove the note", autogenerate=True, rev_id="0003"
        )
    )
    database.close()
    written = Path(script.path).read_text()
    assert "down_revision = '0002'" in written
    assert "drop_column('note')" in written
    compile(written, "0003", "exec")

"""Opening a database: what is made, what is refused, and what is said."""

from __future__ import annotations

import hashlib
import sqlite3
import threading
import traceback
from pathlib import Path

import pytest
from sqlalchemy import text

from foreshock.storage.database import Database
from foreshock.storage.errors import (
    BadDatabaseUrl,
    DamagedDatabase,
    DatabaseUnavailable,
    ForeignDatabase,
    ReadOnlyStore,
    SchemaTooNew,
    SchemaTooOld,
)
from foreshock.storage.records import CheckpointState, Status
from foreshock.storage.store import Store


def execute(url, statement):
    database = Database(url, read_only=False, create=True)
    database.write(lambda connection: connection.execute(text(statement)))
    database.close()


def test_opening_again_finds_what_was_stored(database_url):
    with Store.open(database_url) as store:
        run = store.ensure_run("llama", "/l")
    with Store.open(database_url, migrate=False) as store:
        assert store.runs() == (run,)
        assert store.check() == ()


def test_several_may_open_a_new_database_at_once(database_url):
    problems = []

    def open_it():
        try:
            Store.open(database_url).close()
        except Exception as error:  # noqa: BLE001 - reported below
            problems.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    with Store.open(database_url, migrate=False) as store:
        assert store.check() == ()


def test_a_newer_schema_is_refused(database_url):
    Store.open(database_url).close()
    execute(database_url, "UPDATE foreshock_schema SET version_num = '9999'")
    for choice in ({}, {"migrate": False}, {"read_only": True}):
        with pytest.raises(SchemaTooNew, match="newer version"):
            Store.open(database_url, **choice)


def test_nothing_is_written_to_a_newer_schema(sqlite_path):
    url = f"sqlite:///{sqlite_path}"
    Store.open(url).close()
    execute(url, "UPDATE foreshock_schema SET version_num = '9999'")
    before = hashlib.sha256(sqlite_path.read_bytes()).digest()
    with pytest.raises(SchemaTooNew):
        Store.open(url)
    assert hashlib.sha256(sqlite_path.read_bytes()).digest() == before


def test_an_empty_database_says_how_to_upgrade_it(database_url):
    execute(database_url, "SELECT 1")
    for choice in ({"migrate": False}, {"read_only": True}):
        with pytest.raises(SchemaTooOld, match="foreshock db upgrade"):
            Store.open(database_url, **choice)
    Store.open(database_url).close()
    Store.open(database_url, read_only=True).close()


def test_somebody_elses_tables_are_left_alone(database_url):
    execute(database_url, "CREATE TABLE runs (id INTEGER)")
    with pytest.raises(ForeignDatabase, match="did not make"):
        Store.open(database_url)


def test_a_store_for_reading_writes_nothing(database_url):
    with Store.open(database_url) as store:
        run = store.ensure_run("llama", "/l")
    with Store.open(database_url, read_only=True) as store:
        assert store.runs() == (run,)
        for write in (
            lambda: store.ensure_run("other", "/o"),
            lambda: store.open_attempt(run.id, 0, ""),
            lambda: store.register_metrics([]),
            lambda: store.mark_announced(1),
            lambda: store.set_status(Status("a", run.created_at, True, {})),
            lambda: store.note_checkpoint(1, step=1, path="", state=CheckpointState.PENDING),
        ):
            with pytest.raises(ReadOnlyStore, match="reading only"):
                write()
        assert store.runs() == (run,)


def test_a_reading_connection_cannot_write_even_when_asked_to(database_url):
    Store.open(database_url).close()
    database = Database(database_url, read_only=True)
    with pytest.raises(Exception, match=r"readonly|read-only"):
        database.read(lambda connection: connection.execute(text("DELETE FROM runs")))
    database.close()


@pytest.mark.parametrize("choice", [{"migrate": False}, {"read_only": True}])
def test_only_a_migration_makes_a_file(tmp_path, choice):
    with pytest.raises(DatabaseUnavailable, match="no database; `foreshock db upgrade` makes one"):
        Store.open(f"sqlite:///{tmp_path}/a/b.sqlite", **choice)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DatabaseUnavailable, match=r"file/state: the directory cannot be made"):
        Store.open(f"sqlite:///{tmp_path}/file/state/foreshock.sqlite")


def test_a_directory_is_no_database(tmp_path):
    with pytest.raises(DatabaseUnavailable, match="not a regular file"):
        Store.open(f"sqlite:///{tmp_path}")


def test_a_file_of_something_else_is_not_overwritten(sqlite_path):
    sqlite_path.write_bytes(b"no database at all, but a long enough text" * 100)
    before = sqlite_path.read_bytes()
    with pytest.raises(DamagedDatabase, match="not a database"):
        Store.open(f"sqlite:///{sqlite_path}")
    assert sqlite_path.read_bytes() == before


@pytest.mark.parametrize(
    "url",
    [
        "",
        "nonsense",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:////a/b?mode=memory",
        "mysql://host/name",
        "postgresql+psycopg2://host/name",
        "postgresql://host:port/name",
    ],
)
def test_a_url_that_means_nothing_here_is_refused(url):
    with pytest.raises(BadDatabaseUrl):
        Store.open(url)


def test_no_message_holds_the_password():
    pytest.importorskip("psycopg")
    url = "postgresql://user:pa55word@127.0.0.1:1/name"
    with pytest.raises(DatabaseUnavailable) as caught:
        Store.open(url)
    assert "pa55word" not in "".join(traceback.format_exception(caught.value))
    assert "127.0.0.1" in str(caught.value)


def test_damage_is_found(sqlite_path, measured, sample):
    with Store.open(f"sqlite:///{sqlite_path}") as store:
        attempt = store.open_attempt(store.ensure_run("r", "/r").id, 0, "")
        store.record_measurement(attempt.id, measured(1), [sample(1, 1.0, lag=lag) for lag in range(3000)])
    content = bytearray(sqlite_path.read_bytes())
    page = len(content) // 4096 * 3 // 4
    content[page * 4096 : page * 4096 + 2048] = bytes(2048)
    sqlite_path.write_bytes(content)
    with Store.open(f"sqlite:///{sqlite_path}") as store:
        assert any("damage" in problem for problem in store.check())


def test_orphans_are_found(sqlite_path):
    with Store.open(f"sqlite:///{sqlite_path}") as store:
        store.open_attempt(store.ensure_run("r", "/r").id, 0, "")
    raw = sqlite3.connect(sqlite_path)
    raw.execute("DELETE FROM runs")
    raw.commit()
    raw.close()
    with Store.open(f"sqlite:///{sqlite_path}") as store:
        assert store.check() == ("1 rows of attempts belong to no row of runs",)


def test_the_size_is_told(store, database_url):
    size = store.size_bytes()
    assert size > 10_000
    if database_url.startswith("sqlite"):
        assert size == Path(database_url.removeprefix("sqlite:///")).stat().st_size

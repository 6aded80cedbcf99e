"""What only SQLite needs: its journal, its file, its locks."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from foreshock.storage import journal
from foreshock.storage.database import Database
from foreshock.storage.engine import sqlite_engine
from foreshock.storage.errors import DatabaseUnavailable
from foreshock.storage.journal import ROLLBACK, WRITE_AHEAD, filesystem_of, journal_for
from foreshock.storage.store import Store


@pytest.mark.parametrize(
    ("version", "chosen"),
    [
        ((3, 40, 1), ROLLBACK),
        ((3, 44, 5), ROLLBACK),
        ((3, 44, 6), WRITE_AHEAD),
        ((3, 44, 10), WRITE_AHEAD),
        ((3, 45, 9), ROLLBACK),
        ((3, 50, 6), ROLLBACK),
        ((3, 50, 7), WRITE_AHEAD),
        ((3, 51, 2), ROLLBACK),
        ((3, 51, 3), WRITE_AHEAD),
        ((3, 53, 0), WRITE_AHEAD),
        ((4, 0, 0), WRITE_AHEAD),
    ],
)
def test_a_library_that_can_lose_commits_gets_no_write_ahead_log(version, chosen):
    assert journal_for(version, "ext4") is chosen


@pytest.mark.parametrize("filesystem", ["nfs4", "lustre", "gpfs", "fuse.sshfs", "fuse", "9p"])
def test_a_shared_filesystem_gets_no_write_ahead_log(filesystem):
    assert journal_for((3, 53, 0), filesystem) is ROLLBACK


def test_the_filesystem_is_the_one_that_the_kernel_names(tmp_path, monkeypatch):
    device = tmp_path.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    table = tmp_path / "mountinfo"
    table.write_text(
        "22 1 0:0 / /proc rw - proc proc rw\n"
        f"36 35 {number} / /mnt/a\\040b rw,noatime shared:1 master:2 - lustre host:/fs rw\n"
    )
    monkeypatch.setattr(journal, "MOUNTS", table)
    assert filesystem_of(tmp_path) == "lustre"
    monkeypatch.setattr(journal, "MOUNTS", tmp_path / "absent")
    assert filesystem_of(tmp_path) == ""


def pragma(store, name):
    return store._database.read(lambda connection: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one())


def test_connections_are_set_up_to_lose_nothing(sqlite_store):
    mended = journal_for(sqlite3.sqlite_version_info[:3], "") is WRITE_AHEAD
    assert pragma(sqlite_store, "journal_mode") == ("wal" if mended else "delete")
    assert pragma(sqlite_store, "synchronous") == (2 if mended else 3)
    assert pragma(sqlite_store, "foreign_keys") == 1
    assert pragma(sqlite_store, "busy_timeout") == 30_000


def test_a_database_with_a_write_ahead_log_is_taken_back_to_a_rollback_journal(sqlite_path, monkeypatch):
    monkeypatch.setattr("foreshock.storage.database.journal_for", lambda *_: WRITE_AHEAD)
    with Store.open(f"sqlite:///{sqlite_path}") as store:
        assert pragma(store, "journal_mode") == "wal"
    monkeypatch.setattr("foreshock.storage.database.journal_for", lambda *_: ROLLBACK)
    with Store.open(f"sqlite:///{sqlite_path}") as store:
        assert pragma(store, "journal_mode") == "delete"


def test_every_write_locks_before_it_reads(sqlite_store, sqlite_path):
    other = sqlite3.connect(sqlite_path, timeout=0)

    def work(_connection):
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")

    sqlite_store._database.write(work)
    sqlite_store._database.read(lambda _: (other.execute("BEGIN IMMEDIATE"), other.rollback()))
    other.close()


def test_a_large_transaction_locks_no_reader_out(sqlite_store, sqlite_path, measured, sample):
    attempt = sqlite_store.open_attempt(sqlite_store.ensure_run("r", "/r").id, 0, "")
    other = sqlite3.connect(sqlite_path, timeout=0)
    text = "x" * 1000

    def work(connection):
        for name in range(8000):  # 8 MB: four times what the page cache holds
            connection.exec_driver_sql("INSERT INTO metrics VALUES (?, ?, '', 0, 0, '')", (str(name), text))
        assert other.execute("SELECT count(*) FROM attempts").fetchone() == (1,)

    sqlite_store._database.write(work)
    other.close()
    assert attempt.ordinal == 1


def test_the_file_and_its_directories_are_the_owners_alone(tmp_path):
    before = os.umask(0)
    try:
        with Store.open(f"sqlite:///{tmp_path}/state/deep/foreshock.sqlite") as store:
            store.ensure_run("r", "/r")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert modes == {"state": 0o700, "deep": 0o700, "foreshock.sqlite": 0o600}


def test_a_path_is_taken_literally(tmp_path):
    path = tmp_path / "a b#c&d=e;f.sqlite"
    with Store.open(f"sqlite:///{path}") as store:
        store.ensure_run("r", "/r")
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def delete(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    other = path.with_suffix(".other")
    Store.open(f"sqlite:///{other}").close()
    other.replace(path)


@pytest.mark.parametrize("harm", [delete, replace])
def test_a_file_that_was_deleted_or_replaced_is_noticed(sqlite_store, sqlite_path, harm):
    sqlite_store.ensure_run("before", "/b")
    harm(sqlite_path)
    with pytest.raises(DatabaseUnavailable, match="deleted or replaced"):
        sqlite_store.ensure_run("after", "/a")
    with pytest.raises(DatabaseUnavailable, match="deleted or replaced"):
        sqlite_store.runs()
    assert sqlite_store.size_bytes() == (sqlite_path.stat().st_size if sqlite_path.exists() else 0)


def test_a_commit_into_a_file_deleted_meanwhile_is_not_acknowledged(sqlite_store, sqlite_path):
    with pytest.raises(DatabaseUnavailable, match="deleted or replaced"):
        sqlite_store._database.write(lambda _connection: sqlite_path.unlink())


def test_a_connection_makes_no_new_file(sqlite_path):
    engine = sqlite_engine(sqlite_path, ROLLBACK, read_only=False)
    with pytest.raises(OperationalError, match="unable to open"):
        engine.connect()
    assert not sqlite_path.exists()


WATCHFUL = """
import sys
opened = []
sys.addaudithook(lambda event, arguments: event == "open" and opened.append(str(arguments[0])))
from datetime import UTC, datetime
from foreshock.storage.store import Store
from foreshock.storage.records import Status
with Store.open("sqlite:///" + sys.argv[1]) as store:
    store.set_status(Status("a", datetime.now(UTC), True, {}))
    store.statuses(), store.check(), store.size_bytes()
print([path for path in opened if sys.argv[1] in path])
"""


def test_the_database_is_never_opened_but_by_sqlite(sqlite_path):
    """Closing another descriptor of it would drop the locks that SQLite holds for the process."""
    command = [sys.executable, "-I", "-c", WATCHFUL, str(sqlite_path)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert said == "[]\n"


def test_an_older_reader_of_a_busy_write_ahead_log_is_told_why(sqlite_path, monkeypatch):
    monkeypatch.setattr("foreshock.storage.engine.BUSY_TIMEOUT_SECONDS", 0.05)
    monkeypatch.setattr("foreshock.storage.database.journal_for", lambda *_: WRITE_AHEAD)
    with Store.open(f"sqlite:///{sqlite_path}") as store:
        store.ensure_run("r", "/r")
        monkeypatch.setattr("foreshock.storage.database.journal_for", lambda *_: ROLLBACK)
        with pytest.raises(DatabaseUnavailable, match=r"write-ahead log|locked"):
            Store.open(f"sqlite:///{sqlite_path}")


def test_a_full_disk_costs_the_transaction_and_nothing_else(sqlite_store, monkeypatch):
    waits = []
    monkeypatch.setattr("foreshock.storage.database.time.sleep", waits.append)
    run = sqlite_store.ensure_run("before", "/b")

    def fill(connection):
        connection.exec_driver_sql("PRAGMA max_page_count = 40")
        for number in range(1000):
            connection.exec_driver_sql("INSERT INTO metrics VALUES (?, ?, '', 0, 0, '')", (number, "x" * 999))

    with pytest.raises(DatabaseUnavailable, match="full"):
        sqlite_store._database.write(fill)
    assert waits == []
    assert sqlite_store.runs() == (run,)
    assert sqlite_store.metrics() == ()
    assert sqlite_store.ensure_run("after", "/a").name == "after"


def test_two_databases_in_one_process_do_not_disturb_each_other(sqlite_path):
    first = Database(f"sqlite:///{sqlite_path}", read_only=False, create=True)
    second = Database(f"sqlite:///{sqlite_path}", read_only=False)
    assert first.file == second.file
    first.close()
    second.close()

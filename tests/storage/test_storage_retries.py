"""What passes is tried again, whole and on a fresh connection; what does not pass is said."""

from __future__ import annotations

import sqlite3

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError, OperationalError

from foreshock.storage import database as database_module
from foreshock.storage.database import RETRY_DELAYS_SECONDS, Database
from foreshock.storage.errors import DatabaseUnavailable, RefusedByDatabase
from foreshock.storage.failures import is_transient
from foreshock.storage.store import Store


@pytest.fixture
def waits(monkeypatch):
    """The delays that were waited, without waiting."""
    seconds: list[float] = []
    monkeypatch.setattr(database_module.time, "sleep", seconds.append)
    return seconds


def failure(code):
    original = sqlite3.OperationalError("as injected")
    original.sqlite_errorcode = code
    return OperationalError("COMMIT", None, original)


@pytest.fixture
def lose_replies(monkeypatch):
    """Let so many transactions be committed and their caller be told that they failed."""
    real = Database._transaction

    def lose(times):
        left = iter(range(times))

        def transaction(self, engine, work):
            result = real(self, engine, work)
            if engine is self._writer and next(left, None) is not None:
                raise failure(sqlite3.SQLITE_IOERR)
            return result

        monkeypatch.setattr(Database, "_transaction", transaction)

    return lose


def test_a_lost_reply_to_a_commit_neither_loses_nor_doubles(store, record, sample, waits, lose_replies):
    lose_replies(3)
    record(1, [sample(1, 1.0)])
    assert waits == list(RETRY_DELAYS_SECONDS[:3])
    (series,) = store.series(store.run("llama").id, "update.effective_rank")
    assert series.steps == (1,)


def test_an_attempt_is_opened_once_even_when_the_reply_is_lost(store, run, waits, lose_replies):
    lose_replies(1)
    opened = store.open_attempt(run.id, 0, "first checkpoint")
    assert store.attempts(run.id) == (opened,)


def test_tries_are_bounded(store, attempt, measured, waits, lose_replies):
    lose_replies(1000)
    with pytest.raises(DatabaseUnavailable, match="as injected"):
        store.record_measurement(attempt.id, measured(1), [])
    assert waits == list(RETRY_DELAYS_SECONDS)


def test_no_try_begins_when_patience_is_over(record, waits, lose_replies, monkeypatch):
    monkeypatch.setattr(database_module, "PATIENCE_SECONDS", -1.0)
    lose_replies(1000)
    with pytest.raises(DatabaseUnavailable, match="as injected"):
        record(1)
    assert waits == []


def test_each_try_has_a_fresh_connection(store, waits):
    connections = []

    def work(connection):
        connections.append(connection.connection.dbapi_connection)
        if len(connections) < 3:
            raise failure(sqlite3.SQLITE_BUSY)
        return "done"

    assert store._database.write(work) == "done"
    assert len(set(map(id, connections))) == 3


def test_a_lock_held_by_another_is_waited_for(sqlite_path, monkeypatch):
    monkeypatch.setattr("foreshock.storage.engine.BUSY_TIMEOUT_SECONDS", 0.01)
    with Store.open(f"sqlite:///{sqlite_path}") as store:
        other = sqlite3.connect(sqlite_path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        monkeypatch.setattr(database_module.time, "sleep", lambda _seconds: other.close())
        assert store.ensure_run("r", "/r").name == "r"


def test_what_cannot_pass_is_not_tried_again(store, measured, waits):
    with pytest.raises(RefusedByDatabase, match=r"(?i)foreign key"):
        store.record_measurement(999, measured(1), [])
    assert waits == []
    assert store.check() == ()


def test_a_failed_measurement_leaves_nothing_behind(store):
    def work(connection):
        connection.execute(text("INSERT INTO metrics VALUES ('m', '', '', NULL, NULL, '')"))
        raise IntegrityError("INSERT", None, sqlite3.IntegrityError("no"))

    with pytest.raises(RefusedByDatabase, match="no"):
        store._database.write(work)
    assert store.metrics() == ()


@pytest.mark.parametrize(
    ("code", "transient"),
    [
        (sqlite3.SQLITE_BUSY, True),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, True),
        (sqlite3.SQLITE_LOCKED, True),
        (sqlite3.SQLITE_IOERR_FSYNC, True),
        (sqlite3.SQLITE_FULL, False),
        (sqlite3.SQLITE_READONLY, False),
        (sqlite3.SQLITE_CANTOPEN, False),
        (sqlite3.SQLITE_CORRUPT, False),
    ],
)
def test_only_what_may_pass_counts_as_transient(code, transient):
    assert is_transient(failure(code)) is transient


def test_errors_repeat_no_stored_value(store, run):
    with pytest.raises(RefusedByDatabase) as caught:
        store._database.write(
            lambda connection: connection.execute(
                text("INSERT INTO attempts (run_id) VALUES (:secret)"), {"secret": 74_755_757}
            )
        )
    assert "74755757" not in str(caught.value)
    assert "parameters hidden" in str(caught.value.__cause__)

"""What only a server does: it stops, it ends sessions, it is started again."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from foreshock.storage import database as database_module
from foreshock.storage.errors import DatabaseUnavailable
from foreshock.storage.store import Store

pytestmark = pytest.mark.slow


@pytest.fixture
def store(postgresql_server):
    with Store.open(postgresql_server.new_database()) as opened:
        yield opened


def test_a_restart_while_idle_is_not_noticed(store, postgresql_server):
    run = store.ensure_run("r", "/r")
    postgresql_server.stop()
    postgresql_server.start()
    assert store.runs() == (run,)
    postgresql_server.stop()
    postgresql_server.start()
    assert store.ensure_run("r", "/r") == run


def test_a_session_ended_in_the_middle_of_a_transaction_costs_one_try(store, monkeypatch):
    waits = []
    monkeypatch.setattr(database_module.time, "sleep", waits.append)
    pids = []

    def work(connection):
        pids.append(connection.scalar(text("SELECT pg_backend_pid()")))
        connection.execute(text("INSERT INTO metrics VALUES ('m', '', '', NULL, NULL, '')"))
        if len(pids) == 1:
            store._database.read(
                lambda other: other.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pids[0]})
            )
            connection.execute(text("SELECT 1"))

    store._database.write(work)
    assert len(set(pids)) == 2
    assert len(waits) == 1
    assert [metric.name for metric in store.metrics()] == ["m"]


def test_a_server_that_is_down_is_waited_for(store, postgresql_server, monkeypatch):
    postgresql_server.stop()
    waits = []

    def wait(seconds):
        waits.append(seconds)
        if len(waits) == 2:
            postgresql_server.start()

    monkeypatch.setattr(database_module.time, "sleep", wait)
    assert store.ensure_run("r", "/r").name == "r"
    assert len(waits) == 2


def test_a_server_that_stays_down_is_reported_without_end(store, postgresql_server, monkeypatch):
    monkeypatch.setattr(database_module.time, "sleep", lambda _seconds: None)
    postgresql_server.stop()
    try:
        with pytest.raises(DatabaseUnavailable, match="connection"):
            store.ensure_run("r", "/r")
        with pytest.raises(DatabaseUnavailable, match="connection"):
            store.runs()
    finally:
        postgresql_server.start()


def test_reading_transactions_are_the_servers_read_only_ones(store):
    with pytest.raises(Exception, match="read-only transaction"):
        store._database.read(lambda connection: connection.execute(text("DELETE FROM runs")))


def test_times_are_utc_whatever_the_servers_zone(postgresql_server):
    url = postgresql_server.new_database()
    with Store.open(f"{url}&options=-c%20timezone%3DAsia/Kolkata") as store:
        run = store.ensure_run("r", "/r")
    with Store.open(url) as store:
        assert store.run("r") == run
        assert str(run.created_at.tzinfo) == "UTC"

"""kill -9 at any moment: nothing acknowledged is lost, nothing is there twice, nothing is there in part."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from foreshock.storage.migrate import VERSION_TABLE
from foreshock.storage.records import CheckpointState
from foreshock.storage.store import Store
from foreshock.storage.tables import metadata

pytestmark = pytest.mark.slow

KILLS = 25
UNITS = 500

WRITER = f"""
import sys
from foreshock.storage.records import CheckpointRecord, CheckpointState, Finding, Sample, SeriesKey
from foreshock.storage.store import Store
store = Store.open(sys.argv[1])
run = store.ensure_run("r", "/r")
attempt = (store.attempts(run.id) or (store.open_attempt(run.id, 0, "first"),))[0]
step = max((each.step for each in store.checkpoints(run.id)), default=0)
while True:
    samples = [
        Sample(SeriesKey("m", 0, "q", "p", f"head.{{unit}}", 1), at, float(at), at - 1)
        for at in (step, step + 1)  # the last one again, as after a restart
        for unit in range({UNITS})
    ]
    record = CheckpointRecord(0, step + 1, "/r/x", CheckpointState.MEASURED)
    store.record_measurement(attempt.id, record, samples, [Finding("f", "s", step + 1, "info", "m")])
    print(step + 1, flush=True)
    step += 1
"""


def run_until_killed(url: str, generator: random.Random) -> list[int]:
    """Steps that the writer said were stored before it was killed."""
    with subprocess.Popen(
        [sys.executable, "-I", "-c", WRITER, url], stdout=subprocess.PIPE, text=True
    ) as writer:
        acknowledged = [int(writer.stdout.readline())]
        delay = threading.Timer(generator.uniform(0, 0.3), writer.send_signal, [signal.SIGKILL])
        delay.start()
        acknowledged += [int(line) for line in writer.stdout if line.endswith("\n")]
        delay.join()
    assert writer.returncode == -signal.SIGKILL
    return acknowledged


@pytest.mark.timeout(600)
def test_a_writer_killed_at_random_loses_nothing_it_acknowledged(database_url):
    generator = random.Random(20)
    Store.open(database_url).close()
    acknowledged: list[int] = []
    for _ in range(KILLS):
        acknowledged += run_until_killed(database_url, generator)
        with Store.open(database_url) as store:
            run = store.run("r")
            stored = [each.step for each in store.checkpoints(run.id)]
            series = store.series(run.id, "m")
            assert {each.state for each in store.checkpoints(run.id)} == {CheckpointState.MEASURED}
            assert set(acknowledged) <= set(stored)
            assert stored == list(range(1, len(stored) + 1))
            assert len(series) == UNITS
            assert {each.steps for each in series} == {(0, *stored)}
            assert [each.finding.step for each in store.findings(run.id, limit=10**6)] == stored[::-1]
            assert store.check() == ()
    assert len(acknowledged) == len(set(acknowledged)) >= KILLS


MIGRATION = """
import os, sys
from sqlalchemy import Engine, event
left = int(sys.argv[2])
@event.listens_for(Engine, "before_cursor_execute")
def count(connection, cursor, statement, *_):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), 9)
from foreshock.storage.store import Store
Store.open(sys.argv[1]).close()
"""


def differences(store: Store) -> list[object]:
    options = {"version_table": VERSION_TABLE, "compare_server_default": True}
    return store._database.read(
        lambda connection: compare_metadata(MigrationContext.configure(connection, opts=options), metadata)
    )


@pytest.mark.timeout(600)
def test_a_migration_killed_at_any_statement_is_done_by_the_next_run(database_url):
    """Each try goes one statement further than the last, on what the last one left behind."""
    statement, killed = 1, 0
    while True:
        command = [sys.executable, "-I", "-c", MIGRATION, database_url, str(statement)]
        died = subprocess.run(command, check=False).returncode == -signal.SIGKILL
        if not died:
            break
        killed, statement = killed + 1, statement + 1
    assert killed >= len(metadata.tables)
    with Store.open(database_url, migrate=False) as store:
        assert store.check() == ()
        assert differences(store) == []

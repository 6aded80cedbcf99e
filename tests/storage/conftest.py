"""A store on each back end: SQLite always, PostgreSQL where its server is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from foreshock.storage.records import Attempt, CheckpointRecord, CheckpointState, Run, Sample, SeriesKey
from foreshock.storage.store import Store

POSTGRESQL = Path("/usr/lib/postgresql/15/bin")


class Server:
    """A PostgreSQL server of our own, reached through a socket in its directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        if os.geteuid() == 0:  # the server refuses to run as root
            self._as: dict[str, object] = {"user": "nobody", "group": "nogroup", "extra_groups": []}
            shutil.chown(directory, "nobody", "nogroup")
        else:
            self._as = {}

    def _run(self, *command: str) -> None:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
        program, *arguments = command
        subprocess.run(
            [POSTGRESQL / program, *arguments], check=True, cwd=self.directory, **quiet, **self._as
        )

    def start(self) -> None:
        data = str(self.directory / "data")
        if not Path(data).exists():
            self._run("initdb", "-D", data, "-A", "trust", "-U", "foreshock", "--no-sync")
        options = f"-k {self.directory} -c listen_addresses='' -c fsync=off"
        self._run("pg_ctl", "-D", data, "-w", "-l", str(self.directory / "log"), "-o", options, "start")

    def stop(self, mode: str = "immediate") -> None:
        self._run("pg_ctl", "-D", str(self.directory / "data"), "-w", "-m", mode, "stop")

    def new_database(self) -> str:
        name = f"test_{uuid4().hex}"
        self._run("createdb", "-h", str(self.directory), "-U", "foreshock", name)
        return f"postgresql://foreshock@/{name}?host={self.directory}"


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[Server]:
    if not (POSTGRESQL / "postgres").exists():
        pytest.skip(f"no PostgreSQL server in {POSTGRESQL}")
    pytest.importorskip("psycopg", reason="the package psycopg is not installed")
    directory = Path(tempfile.mkdtemp(prefix="foreshock-pg-"))
    server = Server(directory)
    server.start()
    yield server
    server.stop()
    shutil.rmtree(directory)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/foreshock.sqlite"
    server: Server = request.getfixturevalue("postgresql_server")
    return server.new_database()


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as opened:
        yield opened


@pytest.fixture
def sqlite_path(tmp_path: Path) -> Path:
    return tmp_path / "foreshock.sqlite"


@pytest.fixture
def sqlite_store(sqlite_path: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{sqlite_path}") as opened:
        yield opened


@pytest.fixture
def run(store: Store) -> Run:
    return store.ensure_run("llama", "/checkpoints/llama")


@pytest.fixture
def attempt(store: Store, run: Run) -> Attempt:
    return store.open_attempt(run.id, 0, "first checkpoint")


@pytest.fixture
def measured() -> Callable[..., CheckpointRecord]:
    def make(step: int, **changes: object) -> CheckpointRecord:
        fields = {"path": f"/checkpoints/llama/step-{step}", "state": CheckpointState.MEASURED, **changes}
        return CheckpointRecord(attempt=0, step=step, **fields)

    return make


@pytest.fixture
def record(store: Store, attempt: Attempt, measured: Callable[..., CheckpointRecord]) -> Callable[..., None]:
    """Store a measurement in the first attempt."""

    def store_it(step: int, samples: object = (), findings: object = (), **changes: object) -> None:
        store.record_measurement(attempt.id, measured(step, **changes), samples, findings)

    return store_it


@pytest.fixture
def sample() -> Callable[..., Sample]:
    """A sample of a series that differs from the usual one in what is said."""

    def make(step: int, value: float | None, **changes: object) -> Sample:
        base_step = changes.pop("base_step", None)
        reason = changes.pop("reason", "")
        key = {
            "metric": "update.effective_rank",
            "layer": 0,
            "role": "q",
            "parameter": "q_proj.weight",
            "lag": 1,
        }
        return Sample(SeriesKey(**{**key, **changes}), step, value, base_step, reason)

    return make

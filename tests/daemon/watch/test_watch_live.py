"""`foreshock watch` as a process beside a job that saves, deletes and restarts."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import time
from pathlib import Path

import pytest
import torch

from foreshock.storage.store import Store
from tests.daemon.watch.watching import Job, Watcher, wait_until

pytestmark = pytest.mark.slow


def snapshot(root: Path) -> dict[str, tuple[int, int, int]]:
    """Every entry with size, change time and access time."""
    found = {}
    for path in sorted(root.rglob("*")):
        status = path.stat()
        found[str(path)] = (status.st_size, status.st_mtime_ns, status.st_atime_ns if path.is_file() else 0)
    return found


def test_checkpoints_are_measured_as_they_appear_and_nothing_is_touched(job: Job, watcher: Watcher) -> None:
    watcher.start()  # before the job has made its directory
    for step in (10, 20, 30):
        job.save(step)
    before = snapshot(job.root)
    watcher.wait_for(measured=3)
    assert snapshot(job.root) == before
    assert watcher.stop() == 0
    with Store.open(watcher.database) as store:
        (run,) = store.runs()
        found = store.series(run.id, "update.effective_rank", role="q", unit="", lag=1)
        assert [series.steps for series in found] == [(20, 30)] * 2
        assert [series.base_steps for series in found] == [(10, 20)] * 2
        assert store.check() == ()
        names = {metric.name for metric in store.metrics()}
        assert {each.metric for each in store.facets(run.id)} <= names


def test_a_rotation_that_keeps_only_the_newest_loses_no_difference(job: Job, watcher: Watcher) -> None:
    watcher.start()
    for number in range(1, 7):
        job.save(10 * number)
        watcher.wait_for(measured=number)
        job.delete(10 * number)
    assert watcher.stop() == 0
    with Store.open(watcher.database) as store:
        (run,) = store.runs()
        by_lag = {
            lag: store.series(run.id, "update.effective_rank", role="q", unit="", lag=lag)[0]
            for lag in (1, 4)
        }
        assert by_lag[1].steps == (20, 30, 40, 50, 60)
        assert (by_lag[4].steps, by_lag[4].base_steps) == ((50, 60), (10, 20))
        (persistence, _) = store.series(run.id, "update.persistence", role="q", unit="", lag=1)
        assert persistence.steps == (20, 30, 40, 50, 60)
        assert [value is None for value in persistence.values] == [True, False, False, False, False]


def test_a_restart_neither_repeats_nor_misses_and_finds_its_bases(job: Job, watcher: Watcher) -> None:
    for step in (10, 20):
        job.save(step)
    watcher.start()
    watcher.wait_for(measured=2)
    started = time.monotonic()
    assert watcher.stop() == 0
    assert time.monotonic() - started < 10
    measured_at = {record.step: record.settled_at for record in watcher.checkpoints()}
    shutil.rmtree(job.root / "checkpoint-10")
    shutil.rmtree(job.root / "checkpoint-20")
    job.save(30)
    watcher.start()
    watcher.wait_for(measured=3)
    watcher.stop()
    again = {record.step: record.settled_at for record in watcher.checkpoints()}
    assert {step: again[step] for step in (10, 20)} == measured_at
    with Store.open(watcher.database) as store:
        (run,) = store.runs()
        found = store.series(run.id, "update.effective_rank", role="q", unit="", lag=1)
        assert [series.steps for series in found] == [(20, 30)] * 2


def test_a_watcher_killed_at_any_time_goes_on_where_it_stopped(job: Job, watcher: Watcher) -> None:
    for number in range(1, 9):
        job.save(10 * number)
    for delay in (1.5, 2.5, 3.5):
        watcher.start()
        time.sleep(delay)  # wherever it may be
        watcher.send(signal.SIGKILL)
        watcher.ended()
    job.save(90)  # or all might be measured before the last one is ready for signals
    watcher.start()
    watcher.wait_for(measured=9)
    assert watcher.stop() == 0
    with Store.open(watcher.database) as store:
        assert store.check() == ()
        (run,) = store.runs()
        (first, _) = store.series(run.id, "update.effective_rank", role="q", unit="", lag=1)
        assert first.steps == tuple(range(20, 91, 10))
        assert len(store.attempts(run.id)) == 1


def test_a_job_that_goes_back_opens_a_new_attempt(job: Job, watcher: Watcher) -> None:
    for step in (10, 20, 30):
        job.save(step)
    watcher.start()
    watcher.wait_for(measured=3)
    job.save(20)
    job.save(30)
    watcher.wait_for_ledger(5)
    assert [(r.attempt, r.step) for r in watcher.checkpoints()] == [
        (1, 10),
        (1, 20),
        (1, 30),
        (2, 20),
        (2, 30),
    ]


def test_corrupt_and_foreign_checkpoints_are_quarantined(job: Job, watcher: Watcher) -> None:
    job.save(10)
    with (job.save(20) / "model.safetensors").open("ab") as file:
        file.write(b"rest")
    (job.root / "checkpoint-25").mkdir()
    (job.root / "checkpoint-25" / "model.safetensors").write_bytes(b"\x04\0\0\0\0\0\0\0{}  ")
    job.save(30)
    watcher.start()
    watcher.wait_for(measured=2, quarantined=2)
    reasons = {record.step: record.reason for record in watcher.checkpoints()}
    assert "4 bytes follow" in reasons[20]
    assert "known role" in reasons[25]
    assert watcher.stop() == 0


def test_the_run_s_directory_deleted_and_made_again_is_watched_again(job: Job, watcher: Watcher) -> None:
    job.save(10)
    watcher.start()
    watcher.wait_for(measured=1)
    shutil.rmtree(job.root)
    job.save(20)
    watcher.wait_for(measured=2)
    assert watcher.stop() == 0


def test_a_second_watcher_of_the_same_run_is_refused(job: Job, watcher: Watcher) -> None:
    job.save(10)
    watcher.start()
    watcher.wait_for(measured=1)
    first = watcher.process
    watcher.start()
    assert watcher.ended() == 78
    assert "already observed" in watcher.log
    watcher.process = first


def test_state_inside_the_run_s_directory_is_refused(job: Job, watcher: Watcher) -> None:
    job.save(10)
    watcher.state = job.root / "state"
    watcher.state.parent.mkdir(exist_ok=True)
    watcher.start()
    assert watcher.ended() == 78
    assert not watcher.state.exists()
    (job.root / "watch.log").unlink()


def test_a_second_signal_ends_at_once(job: Job, watcher: Watcher) -> None:
    job.save(10)
    watcher.start()
    watcher.wait_for(measured=1)
    watcher.send(signal.SIGTERM)
    watcher.send(signal.SIGTERM)
    assert watcher.ended(2) in {0, 128 + signal.SIGTERM}


class Payload:
    """Runs a command in whoever unpickles it."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.marker}",)


def test_malicious_checkpoints_execute_nothing(job: Job, watcher: Watcher, tmp_path: Path) -> None:
    marker = tmp_path / "PWNED"
    job.save(10)
    evil = {"model": job.weights, "step": Payload(marker)}
    for name in ("ckpt_20.pt", "epoch=0-step=30.ckpt"):
        torch.save(evil, job.root / name)
    for name, content in (("pytorch_model.bin", None), (".metadata", pickle.dumps(Payload(marker)))):
        directory = job.root / f"checkpoint-{40 if content is None else 50}"
        directory.mkdir()
        if content is None:
            torch.save(evil, directory / name)
        else:
            (directory / name).write_bytes(content)
            (directory / "__0_0.distcp").write_bytes(content)
    watcher.start()
    watcher.wait_for(measured=4, quarantined=1)  # the weights beside the payload are sound, the index is not
    assert watcher.stop() == 0
    assert not marker.exists()
    assert pickle.loads(pickle.dumps(Payload(marker))) == 0
    assert marker.exists()  # so the payload would have worked


def test_a_directory_whose_name_is_no_text_is_watched_and_found_again(job: Job, watcher: Watcher) -> None:
    job.root = watcher.root = job.root.parent / os.fsdecode(b"run-\xff\xfe")
    job.save(10)
    for measured in (1, 2):
        watcher.start()
        watcher.wait_for(measured=measured)
        assert watcher.stop() == 0
        job.save(20)
    with Store.open(watcher.database) as store:
        assert len(store.runs()) == 1


def test_a_broken_configuration_costs_its_checkpoint_and_not_the_watcher(job: Job, watcher: Watcher) -> None:
    (job.save(10) / "config.json").write_text("{")
    watcher.start()
    watcher.wait_for(quarantined=1)
    job.save(20)
    watcher.wait_for(measured=1)
    assert watcher.stop() == 0
    assert "config.json" in {record.step: record.reason for record in watcher.checkpoints()}[10]


def test_a_database_that_disappears_is_told_and_nothing_is_measured_into_the_void(
    job: Job, watcher: Watcher
) -> None:
    job.save(10)
    watcher.start()
    watcher.wait_for(measured=1)
    (watcher.state / "foreshock.sqlite").unlink()
    job.save(20)
    wait_until(lambda: "database" in watcher.log)
    assert watcher.process is not None
    assert watcher.process.poll() is None
    assert watcher.stop() == 0
    assert not (watcher.state / "foreshock.sqlite").exists()

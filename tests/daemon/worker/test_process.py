from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from foreshock.daemon.errors import WorkerError
from foreshock.daemon.worker import process
from foreshock.daemon.worker.process import Interrupted, Message, Worker

SECONDS = 60.0


@pytest.fixture
def scanner(tmp_path: Path) -> Iterator[Worker]:
    worker = Worker("scan", (str(tmp_path), "0"))
    yield worker
    worker.kill()


def scan(worker: Worker, silence_seconds: float = SECONDS) -> Message:
    *_, answer = worker.ask({"known": {}}, silence_seconds=silence_seconds)
    return answer


def pid_of(worker: Worker) -> int:
    assert worker.pid is not None
    return worker.pid


def test_a_process_answers_again_and_again(scanner: Worker, tmp_path: Path) -> None:
    assert scan(scanner)["scan"]["sightings"] == []
    (tmp_path / "checkpoint-1").mkdir()
    save_file({"w": torch.ones(2, 2)}, tmp_path / "checkpoint-1" / "model.safetensors")
    assert [each["step"] for each in scan(scanner)["scan"]["sightings"]] == [1]
    assert scanner.restarts == 0


def test_a_process_that_is_killed_is_an_error_once_and_then_replaced(scanner: Worker) -> None:
    scan(scanner)
    os.kill(pid_of(scanner), signal.SIGSTOP)
    killer = threading.Timer(0.2, os.kill, (pid_of(scanner), signal.SIGKILL))
    killer.start()
    with pytest.raises(WorkerError, match="signal 9"):
        scan(scanner)
    killer.join()
    assert scan(scanner)["type"] == "result"
    assert scanner.restarts == 1


def test_a_process_that_hangs_is_given_up_after_the_silence_allowed(scanner: Worker) -> None:
    scan(scanner)
    hung = pid_of(scanner)
    os.kill(hung, signal.SIGSTOP)
    with pytest.raises(WorkerError, match="said nothing"):
        scan(scanner, silence_seconds=0.3)
    assert not Path(f"/proc/{hung}").exists()
    assert scan(scanner)["type"] == "result"


def test_while_a_process_is_silent_the_caller_is_not(
    scanner: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "WAIT_SECONDS", 0.05)
    scan(scanner)
    os.kill(pid_of(scanner), signal.SIGSTOP)
    waits: list[None] = []
    with pytest.raises(WorkerError, match="said nothing"):
        list(scanner.ask({"known": {}}, silence_seconds=0.5, on_wait=lambda: waits.append(None)))
    assert len(waits) >= 10


def test_an_interrupt_ends_a_request_in_progress(scanner: Worker) -> None:
    scan(scanner)
    os.kill(pid_of(scanner), signal.SIGSTOP)
    timer = threading.Timer(0.2, scanner.interrupt)
    timer.start()
    with pytest.raises(Interrupted):
        scan(scanner)
    timer.join()


def test_an_interrupt_before_the_request_is_not_lost(scanner: Worker) -> None:
    scanner.interrupt()
    with pytest.raises(Interrupted):
        scan(scanner)


def test_a_write_in_the_directory_wakes_us(tmp_path: Path) -> None:
    woken = threading.Event()
    worker = Worker("scan", (str(tmp_path), "0"), on_notice=lambda _message: woken.set())
    try:
        assert scan(worker)["mode"] == "events"
        (tmp_path / "checkpoint-1").mkdir()
        assert woken.wait(SECONDS)
    finally:
        worker.kill()


def test_a_directory_made_again_wakes_us_too(tmp_path: Path) -> None:
    root = tmp_path / "run"
    woken = threading.Event()
    worker = Worker("scan", (str(root), "0"), on_notice=lambda _message: woken.set())
    try:
        assert scan(worker)["scan"]["root_error"]
        root.mkdir()
        assert not scan(worker)["scan"]["root_error"]
        root.rmdir()
        root.mkdir()
        scan(worker)
        woken.clear()
        (root / "checkpoint-1").mkdir()
        assert woken.wait(SECONDS)
    finally:
        worker.kill()


def test_a_process_does_not_outlive_its_parent(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "from foreshock.daemon.worker.process import Worker\n"
        f"worker = Worker('scan', ({str(tmp_path)!r}, '0'))\n"
        "list(worker.ask({'known': {}}, silence_seconds=60))\n"
        "print(worker.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    child = int(done.stdout)
    pidfd = None
    try:
        pidfd = os.pidfd_open(child)
    except ProcessLookupError:
        return
    ended, _, _ = select.select([pidfd], [], [], SECONDS)
    os.close(pidfd)
    assert ended


def test_the_parent_never_loads_torch_to_watch() -> None:
    code = "import sys, foreshock.daemon.cli; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_scanning_needs_no_torch_either() -> None:
    code = "import sys, foreshock.daemon.worker.scanning; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_nothing_in_the_run_s_directory_or_environment_is_imported(tmp_path: Path) -> None:
    marker = tmp_path / "PWNED"
    payload = f"open({str(marker)!r}, 'w').close()\n"
    for name in ("json.py", "torch.py", "sitecustomize.py", "foreshock.py"):
        (tmp_path / name).write_text(payload)
    worker = Worker("scan", (str(tmp_path), "0"), environment={"PYTHONPATH": str(tmp_path)})
    try:
        assert scan(worker)["type"] == "result"
    finally:
        worker.kill()
    assert not marker.exists()

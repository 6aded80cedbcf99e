from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from foreshock.daemon.discovery.scan import Condition, Known, Scan, Scanner, Sighting


class Clock:
    """Time that moves when told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def scanner(tmp_path: Path, clock: Clock) -> Scanner:
    return Scanner(tmp_path / "run", settle_seconds=3.0, clock=clock)


@pytest.fixture
def save(tmp_path: Path) -> Callable[..., Path]:
    def write(name: str, value: float = 1.0) -> Path:
        directory = tmp_path / "run" / name
        directory.mkdir(parents=True, exist_ok=True)
        save_file({"w": torch.full((4, 4), value)}, directory / "model.safetensors")
        return directory

    return write


def known(scan: Scan) -> dict[str, Known]:
    return {s.name: Known(s.step or 0, s.signature, s.digest) for s in scan.sightings}


def only(scan: Scan) -> Sighting:
    (sighting,) = scan.sightings
    return sighting


def test_a_root_that_does_not_exist_yet_is_an_error_and_then_is_not(
    scanner: Scanner, save: Callable[..., Path]
) -> None:
    assert "No such file" in scanner.scan({}).root_error
    save("checkpoint-1")
    scan = scanner.scan({})
    assert not scan.root_error
    assert only(scan).step == 1


def test_a_checkpoint_is_complete_once_it_has_lain_still(
    scanner: Scanner, save: Callable[..., Path], clock: Clock
) -> None:
    save("checkpoint-1")
    assert only(scanner.scan({})).condition is Condition.WRITING
    clock.now += 2.9
    assert only(scanner.scan({})).condition is Condition.WRITING
    clock.now += 0.2
    sighting = only(scanner.scan({}))
    assert sighting.condition is Condition.COMPLETE
    assert (sighting.step, sighting.format) == (1, "safetensors")


def test_a_file_that_still_grows_starts_the_quiet_time_again(
    scanner: Scanner, save: Callable[..., Path], clock: Clock
) -> None:
    directory = save("checkpoint-1")
    scanner.scan({})
    clock.now += 2
    (directory / "optimizer.pt").write_bytes(b"more")
    scanner.scan({})
    clock.now += 2
    assert only(scanner.scan({})).condition is Condition.WRITING
    clock.now += 1.5
    assert only(scanner.scan({})).condition is Condition.COMPLETE


def test_steps_are_ordered_as_numbers_whatever_their_times(
    scanner: Scanner, save: Callable[..., Path]
) -> None:
    for age, step in enumerate((900, 1000, 50)):
        directory = save(f"checkpoint-{step}")
        os.utime(directory / "model.safetensors", (1e9 - age, 1e9 - age))
    assert [s.step for s in scanner.scan({}).sightings] == [50, 900, 1000]


def test_a_time_in_the_future_or_the_distant_past_does_not_delay(
    scanner: Scanner, save: Callable[..., Path], clock: Clock
) -> None:
    for step, when in ((1, 0), (2, 4e9)):
        os.utime(save(f"checkpoint-{step}") / "model.safetensors", (when, when))
    scanner.scan({})
    clock.now += 3
    assert {s.condition for s in scanner.scan({}).sightings} == {Condition.COMPLETE}


def test_a_settled_checkpoint_is_not_opened_again_until_it_changes(
    tmp_path: Path, save: Callable[..., Path], clock: Clock
) -> None:
    scanner = Scanner(tmp_path / "run", 0.0, clock)
    save("checkpoint-1", 1.0)
    first = scanner.scan({})
    assert only(scanner.scan(known(first))).condition is Condition.SETTLED
    directory = save("checkpoint-1", 2.0)
    os.utime(directory / "model.safetensors", (1, 1))
    again = only(scanner.scan(known(first)))
    assert again.condition is Condition.COMPLETE
    assert again.digest != only(first).digest


def test_the_same_bytes_written_again_have_the_same_digest(
    tmp_path: Path, save: Callable[..., Path], clock: Clock
) -> None:
    scanner = Scanner(tmp_path / "run", 0.0, clock)
    os.utime(save("checkpoint-1") / "model.safetensors", (1, 1))
    first = only(scanner.scan({}))
    save("checkpoint-1")
    again = only(scanner.scan({}))
    assert again.signature != first.signature
    assert again.digest == first.digest


def test_an_unfinished_checkpoint_says_what_is_missing(
    tmp_path: Path, save: Callable[..., Path], clock: Clock
) -> None:
    scanner = Scanner(tmp_path / "run", 0.0, clock)
    file = save("checkpoint-1") / "model.safetensors"
    os.truncate(file, file.stat().st_size - 10)
    sighting = only(scanner.scan({}))
    assert sighting.condition is Condition.WRITING
    assert "its header needs" in sighting.reason


def test_a_corrupt_checkpoint_is_unusable_and_says_why(
    tmp_path: Path, save: Callable[..., Path], clock: Clock
) -> None:
    scanner = Scanner(tmp_path / "run", 0.0, clock)
    with (save("checkpoint-1") / "model.safetensors").open("ab") as file:
        file.write(b"rest")
    sighting = only(scanner.scan({}))
    assert sighting.condition is Condition.UNUSABLE
    assert "4 bytes follow" in sighting.reason


def test_a_file_rewritten_in_place_tells_its_step_by_its_content(tmp_path: Path, clock: Clock) -> None:
    root = tmp_path / "run"
    root.mkdir()
    scanner = Scanner(root, 0.0, clock)
    for step in (100, 200):
        torch.save({"model": {"w": torch.ones(2, 2) * step}, "iter_num": step}, root / "ckpt.pt")
        sighting = only(scanner.scan({}))
        assert (sighting.step, sighting.named, sighting.condition) == (step, False, Condition.COMPLETE)


def test_other_files_of_the_job_are_left_alone(tmp_path: Path, clock: Clock) -> None:
    root = tmp_path / "run"
    (root / "wandb").mkdir(parents=True)
    (root / "README.md").write_text("notes")
    torch.save({"lr": 0.1}, root / "scheduler.pt")
    torch.save({"w": torch.ones(2)}, root / "embedding.pt")
    assert Scanner(root, 0.0, clock).scan({}).sightings == ()


def test_links_in_a_circle_dangling_or_leading_outside_are_not_followed(
    tmp_path: Path, save: Callable[..., Path], clock: Clock
) -> None:
    save("checkpoint-1")
    root = tmp_path / "run"
    outside = tmp_path / "elsewhere"
    shutil.copytree(root / "checkpoint-1", outside)
    (root / "checkpoint-2").symlink_to(outside)
    (root / "checkpoint-3").symlink_to("checkpoint-3")
    (root / "checkpoint-4").symlink_to("checkpoint-nowhere")
    (root / "checkpoint-5").symlink_to("/")
    (root / "last.ckpt").symlink_to("last.ckpt")
    scan = Scanner(root, 0.0, clock).scan({})
    assert [s.name for s in scan.sightings] == ["checkpoint-1"]
    assert {text.split(":")[0] for text in scan.ignored} == {"checkpoint-2", "checkpoint-5"}


def test_a_run_s_directory_may_itself_be_a_link(
    tmp_path: Path, save: Callable[..., Path], clock: Clock
) -> None:
    save("checkpoint-1")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "run")
    assert only(Scanner(link, 0.0, clock).scan({})).condition is Condition.COMPLETE


def test_a_directory_deleted_and_made_again_is_seen_again(
    tmp_path: Path, save: Callable[..., Path], scanner: Scanner
) -> None:
    save("checkpoint-1")
    assert scanner.scan({}).sightings
    shutil.rmtree(tmp_path / "run")
    assert scanner.scan({}).root_error
    save("checkpoint-2")
    assert only(scanner.scan({})).step == 2


def test_a_scan_of_thousands_of_settled_checkpoints_lists_each_only_once(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "run"
    for step in range(300):
        (root / f"checkpoint-{step}").mkdir(parents=True)
        (root / f"checkpoint-{step}" / "model.safetensors").write_bytes(b"")
    scanner = Scanner(root, 0.0, clock)
    settled = {s.name: Known(s.step or 0, s.signature, s.digest) for s in scanner.scan({}).sightings}
    scanner.scan(settled)
    listed: list[str] = []
    real = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: listed.append(str(path)) or real(path))
    scanner.scan(settled)
    assert len(listed) == 1 + 3  # the run itself, and the newest three


def test_a_checkpoint_that_its_writer_marks_as_unfinished_waits(
    tmp_path: Path, save: Callable[..., Path], clock: Clock
) -> None:
    scanner = Scanner(tmp_path / "run", 0.0, clock)
    marker = save("checkpoint-1") / "checkpoint-is-incomplete.txt"
    marker.touch()
    assert "checkpoint-is-incomplete.txt" in only(scanner.scan({})).reason
    marker.unlink()
    assert only(scanner.scan({})).condition is Condition.COMPLETE


def test_a_directory_without_weights_yet_waits(
    tmp_path: Path, save: Callable[..., Path], clock: Clock
) -> None:
    directory = tmp_path / "run" / "checkpoint-1"
    directory.mkdir(parents=True)
    (directory / "config.json").write_text("{}")
    scanner = Scanner(tmp_path / "run", 0.0, clock)
    assert only(scanner.scan({})).condition is Condition.WRITING
    save("checkpoint-1")
    assert only(scanner.scan({})).condition is Condition.COMPLETE

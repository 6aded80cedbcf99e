from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from foreshock.daemon.discovery.scan import Condition, Scan, Sighting
from foreshock.daemon.watch.ledger import Entry, Ledger
from foreshock.storage.records import CheckpointRecord, CheckpointState
from foreshock.storage.store import Store

LIMIT = 100.0


class Clock:
    """Time that moves when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path / 'db.sqlite'}") as opened:
        yield opened


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(store: Store, clock: Clock) -> Ledger:
    return fresh(store, clock)


def fresh(store: Store, clock: Clock) -> Ledger:
    """A ledger as after a restart."""
    ledger = Ledger(store, store.ensure_run("run", "/runs/run"), LIMIT, clock)
    ledger.load()
    return ledger


def complete(step: int, digest: str = "", name: str = "") -> Sighting:
    return Sighting(
        name or f"checkpoint-{step}",
        step,
        not name,
        Condition.COMPLETE,
        f"signature-{step}-{digest}",
        digest or f"digest-{step}",
        "safetensors",
    )


def writing(step: int, signature: str = "grows") -> Sighting:
    return Sighting(f"checkpoint-{step}", step, True, Condition.WRITING, signature, reason="no index yet")


def scan(*sightings: Sighting) -> Scan:
    return Scan("", sightings, ())


def measured(ledger: Ledger, store: Store, entry: Entry) -> None:
    """What the observer does once a checkpoint is measured."""
    record = CheckpointRecord(
        0, entry.step, f"/runs/run/{entry.name}", CheckpointState.MEASURED, fingerprint=entry.fingerprint
    )
    store.record_measurement(entry.attempt, record, [])
    ledger.settle(entry, CheckpointState.MEASURED)


def take_and_measure(ledger: Ledger, store: Store, *sightings: Sighting) -> list[int]:
    ready = ledger.take(scan(*sightings))
    for entry in ready:
        measured(ledger, store, entry)
    return [entry.step for entry in ready]


def states(store: Store) -> list[tuple[int, int, str]]:
    run = store.run("run")
    assert run is not None
    return [(record.attempt, record.step, record.state.value) for record in store.checkpoints(run.id)]


def test_complete_checkpoints_are_ready_in_step_order(ledger: Ledger) -> None:
    ready = ledger.take(scan(complete(1000), complete(900), complete(50)))
    assert [entry.step for entry in ready] == [50, 900, 1000]


def test_what_is_measured_is_not_ready_again_not_even_after_a_restart(
    ledger: Ledger, store: Store, clock: Clock
) -> None:
    assert take_and_measure(ledger, store, complete(1), complete(2)) == [1, 2]
    assert ledger.take(scan(complete(1), complete(2))) == ()
    restarted = fresh(store, clock)
    assert restarted.take(scan(complete(1), complete(2))) == ()
    assert set(restarted.known()) == {"checkpoint-1", "checkpoint-2"}


def test_a_checkpoint_found_before_a_restart_and_not_measured_is_ready_after_it(
    ledger: Ledger, store: Store, clock: Clock
) -> None:
    ledger.take(scan(complete(1)))
    restarted = fresh(store, clock)
    assert [entry.step for entry in restarted.take(scan(complete(1)))] == [1]


def test_a_step_that_goes_back_opens_a_new_attempt_and_differences_stay_within_it(
    ledger: Ledger, store: Store
) -> None:
    take_and_measure(ledger, store, complete(100), complete(200), complete(300))
    again = complete(200, "other")
    (entry,) = ledger.take(scan(complete(100), again, complete(300)))
    assert ledger.measured_before(entry) == ()
    measured(ledger, store, entry)
    (next_entry,) = ledger.take(scan(complete(100), again, complete(300, "other")))
    assert [before.step for before in ledger.measured_before(next_entry)] == [200]
    measured(ledger, store, next_entry)
    assert states(store) == [
        (1, 100, "measured"),
        (1, 200, "measured"),
        (1, 300, "measured"),
        (2, 200, "measured"),
        (2, 300, "measured"),
    ]


def test_a_checkpoint_that_completes_late_belongs_to_the_attempt_it_was_seen_in(
    ledger: Ledger, store: Store
) -> None:
    take_and_measure(ledger, store, writing(100), complete(200))
    assert take_and_measure(ledger, store, complete(100), complete(200)) == [100]
    assert states(store) == [(1, 100, "measured"), (1, 200, "measured")]


def test_bases_are_the_nearest_measured_ones_below(ledger: Ledger, store: Store) -> None:
    take_and_measure(ledger, store, complete(1), complete(2), complete(3))
    (entry,) = ledger.take(scan(complete(1), complete(2), complete(3), complete(4)))
    assert [before.step for before in ledger.measured_before(entry)] == [3, 2, 1]


def test_a_checkpoint_deleted_before_it_was_measured_is_missed(ledger: Ledger, store: Store) -> None:
    ledger.take(scan(writing(1), complete(2)))
    ledger.take(scan())
    assert states(store) == [(1, 1, "missed"), (1, 2, "missed")]


def test_an_unlistable_root_misses_nothing(ledger: Ledger, store: Store) -> None:
    ledger.take(scan(complete(1)))
    assert ledger.take(Scan("stale file handle", (), ())) == ()
    assert states(store) == [(1, 1, "pending")]


def test_a_half_deleted_measured_checkpoint_stays_measured(ledger: Ledger, store: Store) -> None:
    take_and_measure(ledger, store, complete(1))
    ledger.take(scan(writing(1)))
    ledger.take(scan())
    assert states(store) == [(1, 1, "measured")]


def test_an_unusable_checkpoint_is_quarantined_with_its_reason_and_retried_when_it_changes(
    ledger: Ledger, store: Store
) -> None:
    bad = Sighting("checkpoint-1", 1, True, Condition.UNUSABLE, "s", "s", reason="4 bytes follow")
    assert ledger.take(scan(bad)) == ()
    assert states(store) == [(1, 1, "quarantined")]
    assert "checkpoint-1" in ledger.known()
    assert take_and_measure(ledger, store, complete(1)) == [1]
    assert states(store) == [(1, 1, "measured")]


def test_an_unreadable_checkpoint_is_looked_at_again_at_every_scan(ledger: Ledger) -> None:
    ledger.take(scan(Sighting("checkpoint-1", 1, True, Condition.UNUSABLE, reason="permission denied")))
    assert "checkpoint-1" not in ledger.known()


def test_an_unfinished_checkpoint_is_given_up_after_the_limit_without_a_change(
    ledger: Ledger, store: Store, clock: Clock
) -> None:
    ledger.take(scan(writing(1)))
    clock.now = LIMIT
    ledger.take(scan(writing(1, "grew")))
    clock.now = 2 * LIMIT
    ledger.take(scan(writing(1, "grew")))
    assert states(store) == [(1, 1, "pending")]
    clock.now = 2 * LIMIT + 1
    ledger.take(scan(writing(1, "grew")))
    assert states(store) == [(1, 1, "quarantined")]


def test_a_second_copy_of_a_step_is_not_a_second_point(ledger: Ledger, store: Store) -> None:
    assert take_and_measure(ledger, store, complete(40), complete(40, name="last.ckpt")) == [40]
    assert ledger.take(scan(complete(40), complete(40, name="last.ckpt"))) == ()


def test_a_copy_of_an_older_step_opens_no_attempt(ledger: Ledger, store: Store) -> None:
    take_and_measure(ledger, store, complete(10), complete(20))
    assert ledger.take(scan(complete(10), complete(20), complete(15, name="best.ckpt"))) == ()
    assert {attempt for attempt, _, _ in states(store)} == {1}


def test_a_file_rewritten_in_place_goes_on_and_can_go_back(ledger: Ledger, store: Store) -> None:
    for step in (100, 200, 300):
        assert take_and_measure(ledger, store, complete(step, name="ckpt.pt")) == [step]
    assert take_and_measure(ledger, store, complete(200, "restarted", name="ckpt.pt")) == [200]
    assert [attempt for attempt, _, _ in states(store)] == [1, 1, 1, 2]


def test_a_file_rewritten_before_it_was_measured_is_missed(ledger: Ledger, store: Store) -> None:
    ledger.take(scan(complete(100, name="ckpt.pt")))
    ledger.take(scan(complete(200, name="ckpt.pt")))
    assert states(store) == [(1, 100, "missed"), (1, 200, "pending")]


def test_one_that_changes_under_the_reader_is_tried_three_times_and_no_more(
    ledger: Ledger, store: Store
) -> None:
    for attempt in range(5):
        ready = ledger.take(scan(complete(1, f"version-{attempt}")))
        for entry in ready:
            ledger.settle(ledger.begin(entry), CheckpointState.MISSED, "changed while it was read")
    assert ledger.take(scan(complete(1, "version-9"))) == ()
    assert states(store) == [(1, 1, "missed")]

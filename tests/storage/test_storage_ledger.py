"""Every checkpoint ever listed ends in one state, and what was measured stays measured."""

from __future__ import annotations

import pytest

from foreshock.storage.records import CheckpointState

PENDING, MEASURED, PARTIAL, MISSED, QUARANTINED = CheckpointState


def note(store, attempt, state, **fields):
    store.note_checkpoint(attempt.id, step=5, path="/p", state=state, **fields)


def only(store, attempt):
    (checkpoint,) = store.checkpoints(attempt.run_id)
    return checkpoint


def test_a_checkpoint_is_seen_once_and_settled_when_its_state_is_final(store, attempt):
    note(store, attempt, PENDING, reason="2 of 3 shards")
    pending = only(store, attempt)
    assert (pending.state, pending.reason, pending.settled_at) == (PENDING, "2 of 3 shards", None)

    note(store, attempt, MISSED, reason="deleted")
    missed = only(store, attempt)
    assert missed.seen_at == pending.seen_at
    assert missed.settled_at >= missed.seen_at

    note(store, attempt, MISSED, reason="deleted")
    assert only(store, attempt) == missed


def test_a_checkpoint_given_up_may_come_back(store, attempt):
    note(store, attempt, QUARANTINED, reason="bad header", fingerprint="a", format="safetensors")
    note(store, attempt, PENDING, fingerprint="b")
    back = only(store, attempt)
    assert (back.state, back.settled_at, back.reason) == (PENDING, None, "")
    assert (back.fingerprint, back.format) == ("b", "safetensors")


def test_an_unknown_fingerprint_erases_no_known_one(store, attempt):
    note(store, attempt, PENDING, fingerprint="a", format="dcp")
    note(store, attempt, MISSED)
    assert (only(store, attempt).fingerprint, only(store, attempt).format) == ("a", "dcp")


@pytest.mark.parametrize("state", [PENDING, MISSED, QUARANTINED])
@pytest.mark.parametrize("before", [MEASURED, PARTIAL])
def test_what_was_measured_is_never_downgraded(store, attempt, record, before, state):
    record(5, state=before, bytes_read=9, seconds=1.5)
    kept = only(store, attempt)
    note(store, attempt, state, reason="deleted", fingerprint="other")
    assert only(store, attempt) == kept
    assert (kept.bytes_read, kept.seconds) == (9, 1.5)


def test_a_partial_measurement_may_become_whole_but_not_the_other_way(store, attempt, measured):
    store.record_measurement(attempt.id, measured(5, state=PARTIAL, reason="1 tensor"), [])
    store.record_measurement(attempt.id, measured(5), [])
    assert only(store, attempt).state is MEASURED
    store.record_measurement(attempt.id, measured(5, state=PARTIAL, reason="1 tensor"), [])
    assert (only(store, attempt).state, only(store, attempt).reason) == (MEASURED, "")


@pytest.mark.parametrize("state", [PENDING, MISSED, QUARANTINED])
def test_a_measurement_leaves_no_other_state(store, attempt, measured, state):
    with pytest.raises(ValueError, match=f"cannot leave step 5 {state}"):
        store.record_measurement(attempt.id, measured(5, state=state), [])


def test_the_ledger_is_in_step_order_and_a_limit_keeps_the_newest(store, run, attempt, measured):
    later = store.open_attempt(run.id, 10, "step 10 after step 30")
    for attempt_id, step in [(attempt.id, 30), (attempt.id, 9), (later.id, 10), (attempt.id, 100)]:
        store.record_measurement(attempt_id, measured(step), [])

    def steps(**choice):
        return [(each.attempt, each.step) for each in store.checkpoints(run.id, **choice)]

    assert steps() == [(1, 9), (1, 30), (1, 100), (2, 10)]
    assert steps(attempt=1) == [(1, 9), (1, 30), (1, 100)]
    assert steps(limit=2) == [(1, 100), (2, 10)]
    assert steps(attempt=7) == []

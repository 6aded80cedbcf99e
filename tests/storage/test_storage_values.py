"""What crosses the boundary of the database is plain, and comes back as it was."""

from __future__ import annotations

import math
import sqlite3
import struct
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest

from foreshock.storage.records import CheckpointState, Finding, Status
from foreshock.storage.values import MAX_NAME_BYTES, name, text

NUMBERS = [
    0.0,
    -0.0,
    1.0,
    -2.5,
    0.1,
    5e-324,
    -5e-324,
    2.2250738585072014e-308,
    1e308,
    -1.7976931348623157e308,
    3.0e15,
    2.0**53 + 2,
    math.nan,
    math.inf,
    -math.inf,
    None,
]


def bits(value: float | None) -> object:
    """What tells -0.0 from 0.0; every NaN is the same NaN here."""
    if value is None or math.isnan(value):
        return repr(value)
    return struct.pack("d", value)


def test_every_kind_of_number_comes_back_bit_by_bit(store, run, attempt, measured, sample):
    samples = [sample(step, value) for step, value in enumerate(NUMBERS)]
    store.record_measurement(attempt.id, measured(1), samples)

    (series,) = store.series(run.id, "update.effective_rank")

    assert [bits(value) for value in series.values] == [bits(value) for value in NUMBERS]
    assert math.copysign(1, series.values[1]) == -1
    assert [sample.kind for sample in samples][-4:] == ["nan", "+inf", "-inf", "undefined"]


def test_numpy_scalars_are_stored_as_numbers(sqlite_store, sqlite_path, measured, sample):
    run = sqlite_store.ensure_run("r", "/r")
    attempt = sqlite_store.open_attempt(np.int64(run.id).item(), np.int64(7), "numpy")
    given = sample(np.int64(7), np.float32(0.5), base_step=np.int32(3), layer=np.int16(2), lag=np.uint8(4))
    record = measured(np.int64(7), bytes_read=np.uint64(12), seconds=np.float32(1.5))
    sqlite_store.record_measurement(attempt.id, record, [given, sample(7, np.float64("nan"))])

    raw = sqlite3.connect(sqlite_path)
    types = {
        row
        for question in (
            "SELECT typeof(step), typeof(base_step), typeof(value) FROM samples WHERE base_step IS NOT NULL",
            "SELECT typeof(layer), typeof(lag), 'real' FROM series",
            "SELECT typeof(step), typeof(bytes_read), typeof(seconds) FROM checkpoints",
            "SELECT typeof(first_step), 'integer', 'real' FROM attempts",
        )
        for row in raw.execute(question)
    }
    raw.close()
    assert types == {("integer", "integer", "real")}


def test_a_numpy_step_and_its_plain_twin_are_one_sample(store, run, attempt, measured, sample):
    store.record_measurement(attempt.id, measured(np.int64(7)), [sample(np.int64(7), np.float32(0.5))])
    store.record_measurement(attempt.id, measured(7), [sample(7, 0.5)])

    (series,) = store.series(run.id, "update.effective_rank")
    assert (series.steps, series.values) == ((7,), (0.5,))
    assert len(store.checkpoints(run.id)) == 1


@pytest.mark.parametrize("step", [2**63, 10**30, -(2**63) - 1, pytest.param(1 << 20_000, id="huge")])
def test_a_step_of_more_than_64_bits_is_refused_with_a_reason(store, attempt, measured, sample, step):
    with pytest.raises(ValueError, match=r"a step of \d+ bits"):
        store.note_checkpoint(attempt.id, step=step, path="/p", state=CheckpointState.PENDING)
    with pytest.raises(ValueError, match=r"a step of \d+ bits"):
        store.record_measurement(attempt.id, measured(1), [sample(step, 1.0)])
    with pytest.raises(ValueError, match=r"a step of \d+ bits"):
        store.open_attempt(attempt.run_id, step, "too far")
    assert store.checkpoints(attempt.run_id) == ()
    assert store.attempts(attempt.run_id) == (attempt,)


def test_the_largest_step_is_kept(store, run, attempt, measured, sample):
    store.record_measurement(attempt.id, measured(2**63 - 1), [sample(2**63 - 1, 1.0)])
    (series,) = store.series(run.id, "update.effective_rank", from_step=2**63 - 1, to_step=10**30)
    assert series.steps == (2**63 - 1,)
    (past,) = store.history(attempt.id, "update.effective_rank", role="q", lag=1, before_step=None, limit=1)
    assert past.steps == (2**63 - 1,)


def test_a_negative_layer_is_refused_since_it_would_mean_no_layer(store, attempt, measured, sample):
    with pytest.raises(ValueError, match="layers count from 0"):
        store.record_measurement(attempt.id, measured(1), [sample(1, 1.0, layer=-1)])


def test_times_come_back_in_utc_from_every_zone(store):
    pacific = datetime(2024, 1, 1, 13, 30, 0, 123456, tzinfo=timezone(timedelta(hours=-8)))
    store.set_status(Status("watch", pacific, True, {}))
    (status,) = store.statuses()
    assert status.updated_at == pacific
    assert status.updated_at.tzinfo is UTC
    assert status.updated_at.hour == 21


def test_a_time_without_a_zone_is_refused(store):
    with pytest.raises(ValueError, match="no time zone"):
        store.set_status(Status("watch", datetime(2024, 1, 1), True, {}))  # noqa: DTZ001


def test_evidence_keeps_what_json_has_no_word_for(store, run, attempt, measured):
    evidence = {"now": np.float32(0.5), "count": np.int64(3), "worst": math.inf, "layers": (1, 2), "ok": True}
    finding = Finding("rule", "subject", 1, "warning", "message", 3, evidence)
    store.record_measurement(attempt.id, measured(1), [], [finding])
    (stored,) = store.findings(run.id)
    assert stored.finding.evidence == {
        "now": 0.5,
        "count": 3,
        "worst": math.inf,
        "layers": [1, 2],
        "ok": True,
    }


def test_what_is_no_json_is_refused(store, run):
    with pytest.raises(TypeError, match="object has no place in JSON"):
        store.set_status(Status("watch", run.created_at, True, {"a": object()}))


def test_a_name_is_cut_to_fit_an_index_and_stays_distinct():
    long, longer = name("é" * 600 + "a"), name("é" * 600 + "b")
    assert long != longer
    assert all(len(each.encode()) <= MAX_NAME_BYTES for each in (long, longer))
    assert name("x" * MAX_NAME_BYTES) == "x" * MAX_NAME_BYTES
    assert name(name("é" * 600)) == name("é" * 600)


def test_an_enumeration_is_stored_as_its_text():
    assert type(text(CheckpointState.MEASURED)) is str

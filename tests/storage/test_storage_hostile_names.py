"""A name is only ever text."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from foreshock.storage.records import Finding, Status
from foreshock.storage.values import name, text

NAMES = [
    "'; DROP TABLE samples; --",
    '" OR 1=1 --',
    "`); DELETE FROM runs; --",
    "%",
    "_",
    "100%_[a-z]*?",
    "\\",
    "\\x00",
    ":name",
    "%(name)s",
    "{name}",
    "$1",
    "?",
    "",
    " ",
    "NULL",
    "nul\0inside",
    "\0",
    "lone\ud800surrogate",
    "\udcff",
    "pair\ud83d\ude00apart",
    "\r\nX-Header: 1",
    "\x1b[2Jclear",
    "\u202egnp.exe",
    "zero\u200dwidth",
    "emoji 🦀",
    "İstanbul",
    "<script>alert(1)</script>",
    "{{7*7}}",
    "=cmd|'/C calc'!A0",
    "../../etc/passwd",
    "CON",
    "\ufeffbom",
    "\uffff",
    "a" * 10_000,
    "a" * 9_999 + "b",
    "é" * 5_000,
]


@pytest.fixture
def filled(store, run, attempt, measured, sample):
    samples = [sample(1, float(number), parameter=each) for number, each in enumerate(NAMES)]
    samples += [sample(2, 1.0, metric=each, role=each, unit=each, reason=each) for each in NAMES]
    findings = [Finding(each, each, 1, "info", each, None, {each: each}) for each in NAMES]
    store.record_measurement(
        attempt.id, measured(1, path="/\0", reason="\ud800", fingerprint="\0"), samples, findings
    )
    return store


def test_names_neither_collide_nor_change_but_for_what_no_database_takes(filled, run):
    series = filled.series(run.id, "update.effective_rank")
    assert {each.key.parameter for each in series} == {name(each) for each in NAMES}
    values = {each.key.parameter: each.values for each in series}
    changed = {each for each in NAMES if name(each) != each}
    assert all(values[each] == (float(NAMES.index(each)),) for each in NAMES if each not in changed)
    assert all("\0" in each or not each.isprintable() or len(each) > 500 for each in changed)


def test_a_hostile_filter_finds_exactly_its_own(filled, run, attempt):
    for hostile in NAMES:
        (series,) = filled.series(run.id, hostile, role=hostile, unit=hostile, parameter="q_proj.weight")
        assert series.key.metric == name(hostile)
        assert series.reasons == (text(hostile),)
        (past,) = filled.history(attempt.id, hostile, role=hostile, lag=1, before_step=None, limit=5)
        assert past.key == series.key
        assert filled.heatmap(run.id, hostile, role=hostile, lag=1).values == ((1.0,),)


@pytest.mark.parametrize(
    ("hostile", "written"),
    [("nul\0inside", r"nul\x00inside"), ("lone\ud800surrogate", r"lone\ud800surrogate"), ("é🦀", "é🦀")],
)
def test_what_no_database_takes_is_written_out(store, hostile, written):
    assert store.ensure_run(hostile, hostile).name == written
    assert store.run(written).path == written


def test_a_run_is_found_again_under_its_name(store):
    for hostile in NAMES:
        run = store.ensure_run(hostile, hostile)
        assert store.run(hostile) == run
        assert store.ensure_run(hostile, "/moved").id == run.id
        assert store.run(hostile).path == "/moved"
    assert {run.name for run in store.runs()} == {name(each) for each in NAMES}


def test_findings_and_statuses_carry_hostile_text(filled, run):
    stored = filled.findings(run.id, limit=1000)
    assert {each.finding.subject for each in stored} == {name(each) for each in NAMES}
    for hostile in NAMES:
        filled.set_status(Status(hostile, datetime.now(UTC), False, {hostile: [hostile]}))
    assert {each.component for each in filled.statuses()} == {name(each) for each in NAMES}
    assert all("\0" not in repr(list(each.detail)) for each in filled.statuses())


def test_afterwards_the_database_is_sound(filled):
    assert filled.check() == ()

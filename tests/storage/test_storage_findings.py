"""Findings are committed with the samples that caused them, and wait until somebody was told."""

from __future__ import annotations

import pytest

from foreshock.storage.records import Finding, Status


def finding(step, **changes):
    fields = {"rule": "rank_collapse", "subject": "layer 3, q", "severity": "critical", "message": "It fell."}
    return Finding(step=step, **{**fields, "layer": 3, "evidence": {"value": 4.2}, **changes})


@pytest.fixture
def found(store, attempt, measured):
    for step in (10, 20, 30):
        store.record_measurement(attempt.id, measured(step), [], [finding(step)])
    return store


def test_a_finding_comes_back_as_it_was(found, run):
    newest, *_ = found.findings(run.id)
    assert newest.finding == finding(30)
    assert (newest.run, newest.attempt, newest.announced_at) == ("llama", 1, None)


def test_the_newest_come_first(found, run):
    assert [each.finding.step for each in found.findings(run.id)] == [30, 20, 10]
    assert [each.finding.step for each in found.findings(run.id, limit=2)] == [30, 20]
    assert found.findings(run.id + 1) == ()


def test_a_finding_is_stored_once_for_rule_subject_and_step(found, run, attempt, measured):
    again = [finding(30, message="changed"), finding(30), finding(30, subject="layer 4, q")]
    found.record_measurement(attempt.id, measured(30), [], again)
    stored = found.findings(run.id)
    assert [each.finding.subject for each in stored] == ["layer 4, q"] + ["layer 3, q"] * 3
    assert {each.finding.message for each in stored} == {"It fell."}


def test_what_was_announced_leaves_the_outbox_for_good(found, run, attempt, measured):
    oldest, *others = found.unannounced()
    assert [each.finding.step for each in (oldest, *others)] == [10, 20, 30]
    assert [each.finding.step for each in found.unannounced(limit=1)] == [10]

    found.mark_announced(oldest.id)
    (announced,) = [each for each in found.findings(run.id) if each.id == oldest.id]
    found.mark_announced(oldest.id)
    found.record_measurement(attempt.id, measured(10), [], [finding(10)])

    assert found.unannounced() == tuple(others)
    assert announced.announced_at >= announced.found_at
    assert found.findings(run.id)[-1] == announced


def test_the_outbox_holds_every_run(found, measured):
    other = found.ensure_run("mistral", "/m")
    attempt = found.open_attempt(other.id, 0, "first checkpoint")
    found.record_measurement(attempt.id, measured(10), [], [finding(10)])
    assert [each.run for each in found.unannounced()] == ["llama"] * 3 + ["mistral"]


def test_a_component_has_one_status(store, run):
    before = Status("watch:llama", run.created_at, True, {"backlog": 3, "ignored": ["tmp"]})
    after = Status("watch:llama", run.created_at, False, {"last_error": "gone"})
    api = Status("api", run.created_at, True, {})
    for status in (before, api, after):
        store.set_status(status)
    assert store.statuses() == (api, after)

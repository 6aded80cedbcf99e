from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime

import httpx2
import pytest
from prometheus_client import Metric as Family
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from foreshock.api.exposition import Exposition
from foreshock.api.layer_gauges import EXPORTED, gauges
from foreshock.storage.records import (
    CheckpointRecord,
    CheckpointState,
    Finding,
    Metric,
    Sample,
    SeriesKey,
    Status,
)
from foreshock.storage.store import Store

Serve = Callable[..., httpx2.Client]


def scrape(store: Store) -> dict[str, Family]:
    """What Prometheus' own parser makes of the text."""
    text, _ = Exposition(store, "1.2.3").encode("prometheus")
    return {family.name: family for family in parse_text(text.decode())}


def numbers(family: Family) -> dict[tuple[str, ...], float]:
    """Values by the labels' values, in the order of the labels' names."""
    return {tuple(each.labels[name] for name in sorted(each.labels)): each.value for each in family.samples}


def test_both_formats_say_the_same_in_the_official_parsers(recorded: Store) -> None:
    exposition = Exposition(recorded, "1.2.3")
    text, _ = exposition.encode("prometheus")
    openmetrics, _ = exposition.encode("openmetrics")
    assert openmetrics.endswith(b"# EOF\n")
    plain = {each.name: numbers(each) for each in parse_text(text.decode())}
    modern = {each.name: numbers(each) for each in parse_openmetrics(openmetrics.decode())}
    assert modern.keys() - plain.keys() == {"foreshock_build"}
    assert plain.keys() - modern.keys() == {"foreshock_build_info"}
    assert plain.keys() >= {each.family for each in EXPORTED} | {"foreshock_checkpoints"}
    for name in modern.keys() & plain.keys():
        assert modern[name] == plain[name]


def test_every_family_has_our_prefix_a_help_text_and_no_step_label(recorded: Store) -> None:
    for name, family in scrape(recorded).items():
        assert name.startswith("foreshock_")
        assert family.documentation
        for each in family.samples:
            assert not {"step", "head", "unit"} & each.labels.keys()


def test_the_ledger_is_counted_with_zeroes(recorded: Store) -> None:
    found = scrape(recorded)
    assert numbers(found["foreshock_checkpoints"]) == {
        ("measured", "small"): 3,
        ("missed", "small"): 1,
        ("partial", "small"): 0,
        ("pending", "small"): 0,
        ("quarantined", "small"): 0,
    }
    assert numbers(found["foreshock_checkpoint_latest_step"]) == {("small",): 400}
    assert numbers(found["foreshock_checkpoint_analyzed_step"]) == {("small",): 300}
    assert numbers(found["foreshock_read_bytes"]) == {("small",): 3000}
    assert numbers(found["foreshock_findings"]) == {("rank_collapse", "small", "warning"): 1}


def test_heads_are_taken_together(recorded: Store) -> None:
    found = numbers(scrape(recorded)["foreshock_update_effective_rank"])
    assert {labels: value for labels, value in found.items() if labels[0] == "0"} == {
        ("0", "q", "small", "matrix"): 6.0,
        ("0", "q", "small", "min"): 2.0,
        ("0", "q", "small", "median"): 4.0,
        ("0", "q", "small", "max"): 6.0,
    }
    assert numbers(scrape(recorded)["foreshock_training_loss"]) == {("small",): 2.7}


def series(
    metric: str, step: int, value: float | None, *, unit: str = "", lag: int = 1, role: str = "q"
) -> Sample:
    return Sample(SeriesKey(metric, 3, role, "w", unit, lag), step, value)


def told(*samples: Sample, step: int = 100) -> dict[tuple[str, ...], float]:
    return {labels: value for _, labels, value in gauges([(each.key, each) for each in samples], step)}


def test_only_the_shortest_lag_is_shown() -> None:
    lags = [series("update.persistence", 100, float(lag), lag=lag) for lag in (4, 1, 16)]
    assert told(*lags) == {("3", "q", "matrix"): 1.0}


def test_a_series_that_stopped_is_not_shown_as_if_it_went_on() -> None:
    assert told(series("update.persistence", 50, 0.5)) == {}


def test_undefined_is_left_out_and_nan_is_shown() -> None:
    assert told(series("update.persistence", 100, None)) == {}
    (value,) = told(series("update.persistence", 100, math.nan)).values()
    assert math.isnan(value)
    units = [
        series("update.persistence", 100, value, unit=f"head.{n}") for n, value in enumerate((math.nan, None))
    ]
    assert told(*units) == {}


def test_a_router_has_one_value_a_layer() -> None:
    assert told(series("router.conditioning", 100, 9.5, role="router", lag=0)) == {("3",): 9.5}


def test_a_metric_that_is_not_exported_stays_in_the_api() -> None:
    assert told(series("private.metric", 100, 1.0)) == {}


@pytest.mark.slow
def test_the_number_of_series_does_not_grow_with_the_heads(store: Store) -> None:
    def lines(run: str, num_heads: int) -> int:
        attempt = store.open_attempt(store.ensure_run(run, "/c").id, 0, "")
        samples = [
            Sample(SeriesKey("update.effective_rank", layer, role, role, f"head.{head}", 1), 0, 5.0)
            for layer in range(48)
            for role in "qkvo"
            for head in range(num_heads)
        ]
        store.record_measurement(attempt.id, CheckpointRecord(1, 0, "", CheckpointState.MEASURED), samples)
        family = scrape(store)["foreshock_update_effective_rank"]
        return sum(each.labels["run"] == run for each in family.samples)

    assert lines("few", 2) == lines("many", 64) == 48 * 4 * 3


def test_the_oldest_runs_are_left_out_beyond_the_bound_and_counted(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foreshock.api.exposition.MAX_LAYER_GAUGES", 3)
    for run in ("old", "new"):
        attempt = store.open_attempt(store.ensure_run(run, "/c").id, 0, "")
        samples = [Sample(SeriesKey("router.similarity", layer, "router", "w"), 0, 0.1) for layer in (0, 1)]
        store.record_measurement(attempt.id, CheckpointRecord(1, 0, "", CheckpointState.MEASURED), samples)
    found = scrape(store)
    assert {each.labels["run"] for each in found["foreshock_router_similarity"].samples} == {"new"}
    assert numbers(found["foreshock_runs_not_exported"]) == {(): 1}
    assert set(numbers(found["foreshock_checkpoint_latest_step"])) == {("old",), ("new",)}


HOSTILE = [
    'a"} 1\nevil 666',
    "nul\0",
    "cr\rlf\n",
    "back\\slash",
    "lone\ud800",
    'MacBook Pro 14" R/W',
    "\x01",
    "\x02",
    "x" * 5_000,
    "\u2028\x85",
]


def test_no_name_can_break_or_forge_the_scrape(store: Store) -> None:
    for name in HOSTILE:
        run = store.ensure_run(name, "/c")
        attempt = store.open_attempt(run.id, 0, name)
        samples = [Sample(SeriesKey("update.effective_rank", 0, name, name), 0, 1.0)]
        found = [Finding(name, name, 0, "warning", name)]
        checkpoint = CheckpointRecord(1, 0, name, CheckpointState.MEASURED)
        store.record_measurement(attempt.id, checkpoint, samples, found)
        store.set_status(Status(name, datetime.now(UTC), True, {"run": name, "interval_seconds": 10}))
    text, _ = Exposition(store, "1").encode("prometheus")
    assert not {b"\0", b"\r", b"\x01"} & {text[at : at + 1] for at in range(len(text))}
    families = list(parse_text(text.decode("utf-8")))
    assert all(family.name.startswith("foreshock_") for family in families)
    for family in families:
        sets = [(each.name, *sorted(each.labels.items())) for each in family.samples]
        assert len(sets) == len(set(sets)), family.name
    openmetrics, _ = Exposition(store, "1").encode("openmetrics")
    assert list(parse_openmetrics(openmetrics.decode("utf-8")))
    latest = next(each for each in families if each.name == "foreshock_checkpoint_latest_step")
    assert len(latest.samples) == len(HOSTILE)


def test_a_new_checkpoint_shows_at_the_next_scrape(store: Store) -> None:
    exposition = Exposition(store, "1")
    store.register_metrics([Metric("router.similarity", "")])
    attempt = store.open_attempt(store.ensure_run("r", "/c").id, 0, "")
    for step, value in ((100, 0.25), (200, 0.5)):
        checkpoint = CheckpointRecord(1, step, "", CheckpointState.MEASURED)
        sample = Sample(SeriesKey("router.similarity", 0, "router", "w"), step, value)
        store.record_measurement(attempt.id, checkpoint, [sample])
        for _ in range(2):
            text, _ = exposition.encode("prometheus")
            assert f'foreshock_router_similarity{{layer="0",run="r"}} {value}' in text.decode()


@pytest.mark.parametrize(("healthy", "error", "up"), [(True, "", 1.0), (False, "no such directory", 0.0)])
def test_up_follows_the_watcher(store: Store, healthy: bool, error: str, up: float) -> None:
    detail = {"run": "r", "interval_seconds": 10.0, "backlog": 7, "last_error": error}
    store.set_status(Status("watch:r", datetime.now(UTC), healthy, detail))
    found = scrape(store)
    assert numbers(found["foreshock_up"]) == {("r",): up}
    assert numbers(found["foreshock_queue_length"]) == {("r",): 7.0}


def test_a_watcher_that_ended_on_purpose_is_not_down(store: Store) -> None:
    detail = {"run": "r", "interval_seconds": 10.0, "last_error": "stopped"}
    store.set_status(Status("watch:r", datetime.now(UTC), False, detail))
    assert numbers(scrape(store)["foreshock_up"]) == {}

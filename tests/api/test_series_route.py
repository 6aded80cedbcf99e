from __future__ import annotations

import json
from collections.abc import Callable

import httpx2
import pytest

from foreshock.storage.records import CheckpointRecord, CheckpointState, Metric, Sample, SeriesKey
from foreshock.storage.store import Store

RANK = "/metrics/update.effective_rank"


def test_values_that_json_cannot_hold_are_null_with_their_kind(client: httpx2.Client) -> None:
    reply = client.get(RANK, params={"layer": 0})
    assert "NaN" not in reply.text
    assert "Infinity" not in reply.text
    by_unit = {each["unit"]: each for each in reply.json()["series"]}
    assert by_unit[""]["values"] == [8.0, 7.0, 6.0]
    assert by_unit["head.0"]["values"] == [4.0, None, 2.0]
    assert by_unit["head.0"]["kinds"] == ["finite", "nan", "finite"]
    assert by_unit["head.1"]["values"] == [None, None, 6.0]
    assert by_unit["head.1"]["kinds"] == ["undefined", "+inf", "finite"]
    assert by_unit["head.1"]["reasons"] == ["frozen_parameter", "", ""]
    assert by_unit["head.1"]["base_steps"] == [0, 100, 200]


@pytest.mark.parametrize(
    ("filters", "units_by_layer"),
    [
        ({}, {0: {"", "head.0", "head.1"}, 1: {"", "head.0", "head.1"}}),
        ({"run": "small", "layer": 1}, {1: {"", "head.0", "head.1"}}),
        ({"run": "id:1", "unit": ""}, {0: {""}, 1: {""}}),
        ({"unit": "head.1", "layer": 0}, {0: {"head.1"}}),
        ({"role": "k"}, {}),
        ({"role": "q", "lag": 1, "attempt": 1, "parameter": "layers.0.q.weight", "unit": ""}, {0: {""}}),
        ({"attempt": 2}, {}),
        ({"lag": 4}, {}),
        ({"role": "' OR 1=1 --"}, {}),
        ({"role": "%"}, {}),
    ],
)
def test_filters_choose_series(
    client: httpx2.Client, filters: dict[str, object], units_by_layer: dict[int, set[str]]
) -> None:
    found: dict[int, set[str]] = {}
    for each in client.get(RANK, params=filters).json()["series"]:
        found.setdefault(each["layer"], set()).add(each["unit"])
    assert found == units_by_layer


def test_bounds_choose_steps(client: httpx2.Client) -> None:
    reply = client.get(RANK, params={"layer": 0, "unit": "", "from_step": 200, "to_step": 2**63 - 1}).json()
    assert [each["steps"] for each in reply["series"]] == [[200, 300]]


@pytest.mark.parametrize(
    "query",
    [
        "max_points=0",
        "max_points=nan",
        "max_points=1e9",
        "max_points=11001",
        "limit=-1",
        "limit=0",
        "limit=101",
        "layer=-1",
        "layer=inf",
        "lag=0.5",
        "from_step=" + "9" * 4_000,
        "to_step=9223372036854775808",
        "attempt=0",
        "cursor=nonsense",
        "cursor=YWZ0ZXI6LTE",
        "cursor=" + "A" * 65,
        "max_point=10",
        "run=&max_points=NaN",
    ],
)
def test_what_cannot_be_is_422_and_a_problem(client: httpx2.Client, query: str) -> None:
    reply = client.get(f"{RANK}?{query}")
    assert reply.status_code == 422
    assert reply.headers["content-type"] == "application/problem+json"
    problem = json.loads(reply.text, parse_constant=pytest.fail)
    assert problem["status"] == 422
    assert problem["title"]
    name = query.partition("=")[0]
    assert name in problem["detail"] or "max_points" in problem["detail"]
    assert "999" not in reply.text


@pytest.mark.parametrize(
    "path", ["/metrics/no.such.metric", f"{RANK}?run=nobody", f"{RANK}?run=id:77", "/nowhere"]
)
def test_what_is_not_there_is_404_and_a_problem(client: httpx2.Client, path: str) -> None:
    reply = client.get(path)
    assert reply.status_code == 404
    assert reply.headers["content-type"] == "application/problem+json"
    assert set(reply.json()) >= {"type", "title", "status", "detail"}


def test_two_runs_must_be_told_apart(store: Store, serve: Callable[..., httpx2.Client]) -> None:
    for name in ("one", "two"):
        store.ensure_run(name, "/c")
    reply = serve(store).get("/metrics/anything")
    assert reply.status_code == 422
    assert "which of the 2 runs" in reply.json()["detail"]


@pytest.fixture
def many(store: Store) -> Store:
    """120 series of 1,000 points."""
    store.register_metrics([Metric("m", "")])
    attempt = store.open_attempt(store.ensure_run("many", "/c").id, 0, "")
    samples = [
        Sample(SeriesKey("m", layer, "q", "w"), step, float(step % 97))
        for layer in range(120)
        for step in range(1_000)
    ]
    store.record_measurement(attempt.id, CheckpointRecord(1, 0, "/c/0", CheckpointState.MEASURED), samples)
    return store


@pytest.mark.slow
def test_a_reply_is_bounded_and_says_what_it_left_out(
    many: Store, serve: Callable[..., httpx2.Client]
) -> None:
    client = serve(many)
    first = client.get("/metrics/m", params={"max_points": 11_000})
    page = first.json()
    assert len(page["series"]) == 100
    assert page["truncated"]
    assert page["downsampled"]
    assert sum(len(each["steps"]) for each in page["series"]) <= 80_000
    assert all(each["source_points"] == 1_000 for each in page["series"])
    assert len(first.content) < 5_000_000
    rest = client.get("/metrics/m", params={"cursor": page["next_cursor"]}).json()
    assert [each["layer"] for each in rest["series"]] == list(range(100, 120))
    assert rest["next_cursor"] is None
    assert not rest["truncated"]


@pytest.mark.slow
def test_the_first_series_can_be_paged_one_by_one(many: Store, serve: Callable[..., httpx2.Client]) -> None:
    client, layers, cursor = serve(many), [], None
    for _ in range(3):
        query = {"limit": 2, "max_points": 8} | ({"cursor": cursor} if cursor else {})
        page = client.get("/metrics/m", params=query).json()
        layers += [each["layer"] for each in page["series"]]
        cursor = page["next_cursor"]
        assert all(len(each["steps"]) <= 8 for each in page["series"])
    assert layers == [0, 1, 2, 3, 4, 5]


def test_what_did_not_change_is_not_sent_again(client: httpx2.Client) -> None:
    for path in (RANK, "/runs", "/runs/small/checkpoints", "/runs/small/facets", "/static/style.css"):
        first = client.get(path)
        etag = first.headers["etag"]
        again = client.get(path, headers={"if-none-match": f'"other", W/{etag}'})
        assert again.status_code == 304
        assert again.content == b""
        assert again.headers["etag"] == etag
        assert client.get(path, headers={"if-none-match": '"other"'}).status_code == 200


def test_a_poll_costs_no_look_at_the_samples_until_the_ledger_moves(
    store: Store, serve: Callable[..., httpx2.Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = store.open_attempt(store.ensure_run("r", "/c").id, 0, "")
    key = SeriesKey("m", 0, "q", "w")
    paths = ("/metrics/m", "/runs/r/facets", "/runs/r/heatmap?metric=m&role=q")

    def measure(step: int) -> None:
        checkpoint = CheckpointRecord(1, step, "/c", CheckpointState.MEASURED)
        store.record_measurement(attempt.id, checkpoint, [Sample(key, step, 1.0)])

    measure(1)
    client = serve(store)
    etags = {path: client.get(path).headers["etag"] for path in paths}
    with monkeypatch.context() as patched:
        for verb in ("series", "facets", "heatmap"):
            patched.setattr(Store, verb, lambda *_, **__: pytest.fail("samples were read"))
        for path, etag in etags.items():
            assert client.get(path, headers={"if-none-match": etag}).status_code == 304
    measure(2)
    for path, etag in etags.items():
        reply = client.get(path, headers={"if-none-match": etag})
        assert reply.status_code == 200
        assert reply.headers["etag"] != etag
    assert client.get("/metrics/m?max_points=9").headers["etag"] != client.get("/metrics/m").headers["etag"]

from __future__ import annotations

import json
from collections.abc import Callable
from urllib.parse import quote

import httpx2
import pytest

from foreshock.storage.records import CheckpointState
from foreshock.storage.store import Store


def test_a_run_tells_how_far_it_is(client: httpx2.Client) -> None:
    (run,) = client.get("/runs").json()["items"]
    assert run["name"] == "small"
    assert run["latest_step"] == 400
    assert run["analyzed_step"] == 300
    assert run["analyzed_at"].endswith("Z")
    assert [attempt["ordinal"] for attempt in run["attempts"]] == [1]


def test_after_a_restart_the_run_is_as_far_as_its_new_attempt(
    store: Store, serve: Callable[..., httpx2.Client]
) -> None:
    run = store.ensure_run("restarted", "/c")
    for first, steps in ((100, (100, 200, 300)), (150, (150,))):
        attempt = store.open_attempt(run.id, first, "")
        for step in steps:
            store.note_checkpoint(attempt.id, step=step, path="/c", state=CheckpointState.MEASURED)
    (item,) = serve(store).get("/runs").json()["items"]
    assert (item["latest_step"], item["analyzed_step"]) == (150, 150)
    assert [attempt["first_step"] for attempt in item["attempts"]] == [100, 150]


def test_every_checkpoint_is_listed_with_what_became_of_it(client: httpx2.Client) -> None:
    page = client.get("/runs/small/checkpoints").json()
    assert [(each["step"], each["state"]) for each in page["items"]] == [
        (400, "missed"),
        (300, "measured"),
        (200, "measured"),
        (100, "measured"),
    ]
    assert page["items"][0]["reason"] == "deleted_before_it_was_read"
    assert page["counts"] == {"pending": 0, "measured": 3, "partial": 0, "missed": 1, "quarantined": 0}


def test_checkpoints_come_in_pages(client: httpx2.Client) -> None:
    first = client.get("/runs/small/checkpoints", params={"limit": 3}).json()
    rest = client.get("/runs/small/checkpoints", params={"limit": 3, "cursor": first["next_cursor"]}).json()
    assert [each["step"] for each in first["items"] + rest["items"]] == [400, 300, 200, 100]
    assert rest["next_cursor"] is None
    assert client.get("/runs/small/checkpoints", params={"limit": 4}).json()["next_cursor"] is None


def test_a_heatmap_has_a_row_a_layer_and_a_column_a_step(client: httpx2.Client) -> None:
    query = {"metric": "update.effective_rank", "role": "q", "lag": 1, "units": "whole"}
    found = client.get("/runs/small/heatmap", params=query).json()
    assert found["layers"] == [0, 1]
    assert found["steps"] == [100, 200, 300]
    assert found["values"] == [[8.0, 7.0, 6.0], [80.0, 70.0, 60.0]]


def test_a_heatmap_over_heads_leaves_out_what_is_not_finite(client: httpx2.Client) -> None:
    query = {"metric": "update.effective_rank", "role": "q", "lag": 1, "units": "head", "statistic": "max"}
    found = client.get("/runs/small/heatmap", params=query).json()
    assert found["values"] == [[4.0, None, 6.0], [40.0, None, 60.0]]


@pytest.mark.parametrize(
    "query",
    ["role=q", "metric=m&role=q&statistic=mode", "metric=m&role=q&units=heads", "metric=m&role=q&lag=-1"],
)
def test_a_heatmap_of_nothing_in_particular_is_422(client: httpx2.Client, query: str) -> None:
    reply = client.get(f"/runs/small/heatmap?{query}")
    assert reply.status_code == 422
    assert reply.headers["content-type"] == "application/problem+json"


def test_facets_list_what_can_be_asked_for(client: httpx2.Client) -> None:
    items = client.get("/runs/small/facets").json()["items"]
    assert [
        (each["metric"], each["role"], each["lag"], each["has_heads"], each["layers"]) for each in items
    ] == [
        ("training.loss", "training", 0, False, 0),
        ("update.effective_rank", "q", 1, True, 2),
    ]


def test_findings_carry_their_evidence_even_if_it_is_no_number(client: httpx2.Client) -> None:
    reply = client.get("/runs/small/findings")
    (found,) = json.loads(reply.text, parse_constant=pytest.fail)["items"]
    assert (found["rule"], found["step"], found["layer"], found["severity"]) == (
        "rank_collapse",
        300,
        0,
        "warning",
    )
    assert found["evidence"] == {"ratio": None}


HOSTILE = [
    "<script>alert(1)</script>",
    'MacBook Pro 14" R/W',
    "a\r\nb",
    "\u202egnp.exe",
    "nul\0byte",
    "lone\udc80surrogate",
    "'; DROP TABLE runs; --",
    "%0d%0a",
    "..",
    "{{7*7}}",
    "id:1",
    "\U0001f300\u200d",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_comes_back_as_text(
    store: Store, serve: Callable[..., httpx2.Client], name: str
) -> None:
    stored = store.ensure_run(name, f"/c/{name}")
    client = serve(store)
    (run,) = client.get("/runs").json()["items"]
    assert run["name"] == stored.name
    assert client.get(f"/runs/id:{stored.id}/checkpoints").json()["run"] == stored.name
    assert client.get("/metrics", headers={"accept": "text/plain"}).status_code == 200
    if not {"/", ".."} & {*name, name}:
        assert client.get(f"/runs/{quote(stored.name, safe='')}/facets").status_code == 200


def test_a_name_that_is_not_there_is_echoed_on_one_line_and_cut(client: httpx2.Client) -> None:
    reply = client.get("/runs/" + quote("x\r\n\0" + "y" * 5_000, safe="") + "/facets")
    assert reply.status_code == 404
    assert len(reply.text) < 500
    assert not {"\r", "\n", "\0"} & set(reply.json()["detail"])


def test_undecodable_bytes_in_a_path_are_404(client: httpx2.Client) -> None:
    assert client.get("/runs/%ff%fe/facets").status_code == 404

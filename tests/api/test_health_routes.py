from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import pytest

from foreshock.api.health import is_fresh
from foreshock.storage.records import Status
from foreshock.storage.store import Store

Serve = Callable[..., httpx2.Client]


def report(store: Store, *, seconds_ago: float, healthy: bool = True, error: str = "") -> None:
    detail = {"run": "r", "interval_seconds": 10.0, "last_error": error}
    store.set_status(Status("watch:r", datetime.now(UTC) - timedelta(seconds=seconds_ago), healthy, detail))


def test_without_any_watcher_a_database_that_answers_is_enough(store: Store, serve: Serve) -> None:
    reply = serve(store).get("/readyz")
    assert reply.status_code == 200
    assert reply.json() == {"ready": True, "checks": [{"name": "database", "ok": True, "detail": ""}]}


@pytest.mark.parametrize(
    ("seconds_ago", "healthy", "error", "status", "reason"),
    [
        (0, True, "", 200, ""),
        (29, True, "", 200, ""),
        (-3600, True, "", 200, ""),
        (31, True, "", 503, "last heard of 31 s ago, 30 s are allowed"),
        (1, False, "/checkpoints: permission denied", 503, "/checkpoints: permission denied"),
        (1, False, "", 503, "it says that it is not healthy"),
        (60, False, "stopped", 200, ""),
        (2 * 86_400, False, "killed", 200, ""),
    ],
)
def test_readiness_follows_the_watcher(
    store: Store, serve: Serve, *, seconds_ago: float, healthy: bool, error: str, status: int, reason: str
) -> None:
    report(store, seconds_ago=seconds_ago, healthy=healthy, error=error)
    reply = serve(store).get("/readyz")
    assert reply.status_code == status
    checks = {check["name"]: check for check in reply.json()["checks"]}
    assert checks["watch:r"] == {"name": "watch:r", "ok": status == 200, "detail": reason}
    if status == 503:
        assert reply.headers["content-type"] == "application/problem+json"
        assert reason in reply.json()["detail"]


@pytest.mark.parametrize("said", [None, "10", 0, -5, float("nan"), float("inf"), 10**9, [], {}])
def test_an_interval_that_makes_no_sense_counts_as_a_minute(said: object) -> None:
    now = datetime.now(UTC)
    detail = {} if said is None else {"interval_seconds": said}
    for seconds_ago, fresh in ((179, True), (181, False)):
        status = Status("watch:r", now - timedelta(seconds=seconds_ago), True, detail)
        assert is_fresh(status, now) is fresh


def test_status_tells_the_same_with_200(store: Store, serve: Serve) -> None:
    report(store, seconds_ago=31)
    reply = serve(store).get("/status")
    assert reply.status_code == 200
    (component,) = reply.json()["components"]
    assert (component["component"], component["healthy"], component["fresh"]) == ("watch:r", True, False)
    assert reply.json()["version"] == "1.2.3"


def test_a_database_that_is_gone_makes_everything_503_but_life(
    store: Store, serve: Serve, tmp_path: Path
) -> None:
    client = serve(store)
    assert client.get("/runs").status_code == 200
    (tmp_path / "foreshock.sqlite").unlink()
    assert client.get("/livez").json() == {"alive": True}
    assert client.get("/readyz").status_code == 503
    assert client.get("/readyz").json()["checks"][0]["ok"] is False
    reply = client.get("/runs")
    assert reply.status_code == 503
    assert reply.headers["content-type"] == "application/problem+json"
    assert int(reply.headers["retry-after"]) > 0
    assert str(tmp_path) not in reply.text
    scrape = client.get("/metrics")
    assert scrape.status_code == 200
    assert "foreshock_database_up 0.0" in scrape.text


def test_the_version_is_told(client: httpx2.Client) -> None:
    assert client.get("/version").json() == {"version": "1.2.3"}

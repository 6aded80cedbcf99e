from __future__ import annotations

import logging

import httpx2
import pytest

from foreshock.api.app import create_app
from foreshock.api.server import ApiServer
from foreshock.storage.store import Store

SECRET = "hunter2-secret-value"


def test_the_unforeseen_is_500_and_says_nothing_of_what_was_sent(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    app = create_app(store, version="1.2.3")

    @app.get("/broken")
    def broken() -> None:
        raise RuntimeError(f"the password is {SECRET}")

    with ApiServer(app) as server, caplog.at_level(logging.CRITICAL, "uvicorn.error"):
        reply = httpx2.get(f"{server.url}/broken", params={"token": SECRET}, trust_env=False)
    assert reply.status_code == 500
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.json()["title"] == "Internal Server Error"
    assert SECRET not in reply.text
    assert "default-src 'none'" in reply.headers["content-security-policy"]


def test_what_was_sent_is_not_repeated(client: httpx2.Client) -> None:
    for query in (f"max_points={SECRET}", f"cursor={SECRET}", f"run={SECRET}x&layer={SECRET}"):
        reply = client.get(f"/metrics/update.effective_rank?{query}")
        assert reply.status_code == 422
        assert SECRET not in reply.text


def test_each_wrong_parameter_is_named(client: httpx2.Client) -> None:
    reply = client.get("/metrics/update.effective_rank?layer=x&lag=-1")
    assert {each["parameter"] for each in reply.json()["errors"]} == {"layer", "lag"}


def test_the_contract_describes_problems_and_has_no_duplicates(client: httpx2.Client) -> None:
    contract = client.get("/openapi.json").json()
    operations = [operation for path in contract["paths"].values() for operation in path.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(names) == len(set(names))
    for operation in operations:
        assert "application/problem+json" in operation["responses"]["4XX"]["content"]
        assert "422" not in operation["responses"]

from __future__ import annotations

import httpx2
import pytest

from foreshock.api.negotiation import preferred

SCRAPE_3 = (
    "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"

TABLE = [
    ("", "prometheus"),
    ("*/*", "prometheus"),
    ("text/plain", "prometheus"),
    ("TEXT/PLAIN; version=0.0.4", "prometheus"),
    ("text/*", "prometheus"),
    (BROWSER, "prometheus"),
    (SCRAPE_3, "openmetrics"),
    ("application/openmetrics-text", "openmetrics"),
    ("text/plain;q=0.9, application/openmetrics-text;q=0.5", "prometheus"),
    ("application/json", "json"),
    ("application/*", "json"),
    ("application/json, */*;q=0.5", "json"),
    ("application/json, text/plain, */*", "prometheus"),
    ("application/json;q=0.1, text/plain;q=0", "json"),
    ("image/png", "json"),
    ("text/plain;q=nan, application/json;q=0.1", "json"),
    ("text/plain;q=2", "json"),
    (";;,,q=;", "json"),
]


@pytest.mark.parametrize(("accept", "expected"), TABLE)
def test_the_accept_header_chooses_the_representation(accept: str, expected: str) -> None:
    assert preferred(accept) == expected


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        (None, "text/plain; version=0.0.4; charset=utf-8"),
        ("*/*", "text/plain; version=0.0.4; charset=utf-8"),
        (SCRAPE_3, "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping=underscores"),
        ("application/json", "application/json"),
        (
            "application/openmetrics-text; version=9.evil; escaping=x",
            "application/openmetrics-text; version=1.0.0",
        ),
        ("text/plain; version=zero", "text/plain; version=0.0.4"),
    ],
)
def test_a_real_reply_has_that_type_and_never_redirects(
    client: httpx2.Client, accept: str | None, content_type: str
) -> None:
    headers = {"accept": accept} if accept is not None else {}
    request = client.build_request("GET", "/metrics", headers=headers)
    if accept is None:
        del request.headers["accept"]
    reply = client.send(request)
    assert reply.status_code == 200
    assert reply.headers["content-type"].startswith(content_type)
    assert reply.headers["vary"] == "accept"
    assert "evil" not in str(reply.headers)


def test_a_trailing_slash_is_another_path_and_no_redirect(client: httpx2.Client) -> None:
    assert client.get("/metrics/").status_code == 404
    assert client.get("/runs/").status_code == 404


def test_head_gives_the_headers_of_get(client: httpx2.Client) -> None:
    for path in ("/metrics", "/runs", "/livez", "/", "/openapi.json", "/static/main.js"):
        got, head = client.get(path), client.head(path)
        assert head.status_code == got.status_code == 200
        assert head.content == b""
        assert head.headers["content-type"] == got.headers["content-type"]
        if path != "/metrics":
            assert head.headers["content-length"] == got.headers["content-length"]

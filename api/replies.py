"""Replies that a client may keep: it sends the ETag back, and gets 304 while nothing changed."""

from __future__ import annotations

from hashlib import sha256

from fastapi import Request, Response
from pydantic import BaseModel

from foreshock.api.ledger import progress_of
from foreshock.storage.records import Run
from foreshock.storage.store import Store


def tagged(request: Request, body: bytes, media_type: str) -> Response:
    """The body with its digest as ETag, or 304 when the client has it already."""
    etag = _etag(body)
    return not_modified(request, etag) or _kept(etag, body, media_type)


def json_reply(request: Request, model: BaseModel) -> Response:
    """The model as JSON, with the digest of the text as ETag."""
    return tagged(request, model.model_dump_json().encode(), "application/json")


def json_of_run(model: BaseModel, etag: str) -> Response:
    """The model as JSON, with an ETag of `measurements_etag`."""
    return _kept(etag, model.model_dump_json().encode(), "application/json")


def measurements_etag(request: Request, store: Store, run: Run) -> str:
    """An ETag for what is asked about a run's measurements, known without reading them.

    Samples are committed together with the ledger's word on their checkpoint, so an unchanged ledger
    means unchanged samples. A page that polls then costs a look at the ledger, not the whole map.
    """
    asked = (request.scope["path"], request.scope["query_string"])
    known = (progress_of(store.checkpoints(run.id)), len(store.attempts(run.id)))
    return _etag(repr((request.app.version, run, asked, known)).encode())


def not_modified(request: Request, etag: str) -> Response | None:
    """304 when the client's If-None-Match holds the ETag, else None."""
    known = request.headers.get("if-none-match", "")
    if known.strip() == "*" or etag in (each.strip().removeprefix("W/") for each in known.split(",")):
        return Response(status_code=304, headers=_headers(etag))
    return None


def _kept(etag: str, body: bytes, media_type: str) -> Response:
    return Response(body, media_type=media_type, headers=_headers(etag))


def _headers(etag: str) -> dict[str, str]:
    return {"etag": etag, "cache-control": "private, no-cache"}


def _etag(content: bytes) -> str:
    return f'"{sha256(content).hexdigest()[:32]}"'

"""JSON replies that a client may keep: a digest of the body tells whether anything changed."""

from __future__ import annotations

from hashlib import sha256

from fastapi import Request, Response
from pydantic import BaseModel


def tagged(request: Request, body: bytes, media_type: str) -> Response:
    """The body with its ETag, or 304 when the client has it already."""
    etag = f'"{sha256(body).hexdigest()[:32]}"'
    headers = {"etag": etag, "cache-control": "no-cache"}
    known = request.headers.get("if-none-match", "")
    if known.strip() == "*" or etag in (each.strip().removeprefix("W/") for each in known.split(",")):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=media_type, headers=headers)


def json_reply(request: Request, model: BaseModel) -> Response:
    """The model as JSON, with its ETag."""
    return tagged(request, model.model_dump_json().encode(), "application/json")

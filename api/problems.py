"""Every error as an RFC 9457 problem: what happened, in words, never what was sent.

Values from the request are not repeated: they may be secrets, and they may be NaN, for which JSON has
no word.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from http import HTTPStatus

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from foreshock.api.headers import SECURITY_HEADERS
from foreshock.api.text import encodable, one_line
from foreshock.storage.errors import StorageError

log = logging.getLogger(__name__)

RETRY_AFTER_SECONDS = 5

PROBLEM_SCHEMA: Mapping[str, object] = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "For a person; says what would be right."},
    },
}


def problem(
    status: int, detail: str, *, headers: Mapping[str, str] | None = None, **members: object
) -> Response:
    """A reply of type `application/problem+json`.

    Args:
        detail: for a person; says what would be right.
        members: further members of the object, JSON-encodable.
    """
    body = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": encodable(detail),
        **members,
    }
    headers = {"cache-control": "no-store", **(headers or {})}
    return JSONResponse(body, status, headers, media_type="application/problem+json")


async def _on_http(_request: Request, error: HTTPException) -> Response:
    return problem(error.status_code, str(error.detail), headers=error.headers)


async def _on_validation(_request: Request, error: RequestValidationError) -> Response:
    errors = [
        {"parameter": one_line(str(fault["loc"][-1]), limit=64), "detail": one_line(str(fault["msg"]))}
        for fault in error.errors()
    ]
    named = "; ".join(f"{fault['parameter']}: {fault['detail']}" for fault in errors)
    return problem(422, f"The request's parameters are not as they should be: {named}.", errors=errors)


async def _on_storage(_request: Request, error: StorageError) -> Response:
    log.warning("the database does not answer: %s", error)
    wait = {"retry-after": str(RETRY_AFTER_SECONDS)}
    return problem(503, "The database does not answer; the server's log says why.", headers=wait)


async def _on_unexpected(_request: Request, _error: Exception) -> Response:
    # Starlette answers these outside of every middleware, so the headers are added here.
    return problem(
        500, "Something unforeseen happened; the server's log says what.", headers=SECURITY_HEADERS
    )


def install_problem_handlers(app: FastAPI) -> None:
    """Let every error of the application leave it as a problem."""
    app.exception_handler(HTTPException)(_on_http)
    app.exception_handler(RequestValidationError)(_on_validation)
    app.exception_handler(StorageError)(_on_storage)
    app.exception_handler(Exception)(_on_unexpected)

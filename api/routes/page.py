"""The dashboard: one page and its files, read once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fastapi import APIRouter, HTTPException, Request, Response

from foreshock.api.replies import tagged

router = APIRouter(include_in_schema=False)

DASHBOARD = Path(__file__).parent.parent / "dashboard"
MEDIA_TYPES: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_FILES: Mapping[str, tuple[bytes, str]] = {
    path.name: (path.read_bytes(), MEDIA_TYPES[path.suffix])
    for path in DASHBOARD.iterdir()
    if path.suffix in MEDIA_TYPES
}


@router.get("/")
async def page(request: Request) -> Response:
    """The page; it asks for the token itself where one is set."""
    return tagged(request, *_FILES["index.html"])


@router.get("/static/{name}")
async def static(request: Request, name: str) -> Response:
    """A file of the page; only names that exist, so no path can lead elsewhere."""
    if name not in _FILES:
        raise HTTPException(404, "The dashboard has no such file.")
    return tagged(request, *_FILES[name])

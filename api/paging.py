"""Long lists in pages: an opaque cursor says where the next one begins."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import TypeVar

from fastapi import HTTPException
from pydantic import BaseModel, ConfigDict, Field

T = TypeVar("T")

MAX_PAGE = 1000
_PREFIX = b"after:"
_MAX_DIGITS = 9


class PageQuery(BaseModel):
    """Parameters of every list; others are refused, since a misspelt one would be ignored in silence."""

    model_config = ConfigDict(extra="forbid")

    limit: int = Field(100, ge=1, le=MAX_PAGE, description="Items in one reply.")
    cursor: str | None = Field(None, max_length=64, description="`next_cursor` of the reply before.")


def cut(items: Sequence[T], query: PageQuery) -> tuple[Sequence[T], str | None]:
    """The page that the query asks for, and the cursor of the next one; None after the last."""
    start = decode_cursor(query.cursor)
    stop = start + query.limit
    return items[start:stop], encode_cursor(stop) if stop < len(items) else None


def encode_cursor(position: int) -> str:
    """A cursor that stands before the item at the position."""
    return base64.urlsafe_b64encode(_PREFIX + str(position).encode()).decode().rstrip("=")


def decode_cursor(cursor: str | None) -> int:
    """The position a cursor stands for, 0 for none; 422 when we never gave that cursor out."""
    if cursor is None:
        return 0
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        text = b""
    digits = text.removeprefix(_PREFIX)
    if not text.startswith(_PREFIX) or not digits.isdigit() or len(digits) > _MAX_DIGITS:
        raise HTTPException(422, "cursor: take it from `next_cursor` of an earlier reply, unchanged.")
    return int(digits)

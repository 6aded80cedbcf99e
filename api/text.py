"""Names from checkpoints and directories, made harmless without losing what tells them apart."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator

_SURROGATE = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def encodable(text: str) -> str:
    """The text with lone surrogates replaced by U+FFFD, so that UTF-8 can carry it."""
    return _SURROGATE.sub("\ufffd", text)


def one_line(text: str, *, limit: int = 200) -> str:
    """The text for labels and messages: no control characters, at most `limit` characters.

    Prometheus' text format escapes the newline only; NUL and carriage return would pass raw.
    """
    clean = _CONTROL.sub("\ufffd", text)
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def _encodable(value: object) -> object:
    return encodable(value) if isinstance(value, str) else value


Text = Annotated[str, BeforeValidator(_encodable)]
"""A string of a reply: any name is accepted, and encodable once it is validated."""

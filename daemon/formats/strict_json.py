"""JSON as safetensors understands it: stricter than Python's parser, which accepts more than the standard."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from foreshock.daemon.errors import CorruptCheckpoint
from foreshock.daemon.formats.quoting import shown


def parse_object(text: bytes | bytearray, *, where: str) -> dict[str, Any]:
    """The one JSON object that the text holds.

    Names may not repeat, numbers may not be NaN or Infinity, integers may not be negative (nothing that
    these files count can be), and strings must be encodable.

    Raises:
        CorruptCheckpoint: the text breaks one of these rules, or is no JSON.
    """
    try:
        parsed = json.loads(
            text.decode("utf-8"),
            object_pairs_hook=_without_duplicates,
            parse_constant=_no_constant,
            parse_int=_count,
        )
    except (ValueError, RecursionError) as error:
        raise CorruptCheckpoint(f"{where}: not sound JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise CorruptCheckpoint(f"{where}: not a JSON object")
    return parsed


def is_cut(text: bytes | bytearray) -> bool:
    """Whether the text could be the beginning of a JSON object: more of it may follow."""
    written = text.decode("utf-8", "replace").strip("\0 \t\r\n")  # zeros: allocated, not yet written
    try:
        json.JSONDecoder().raw_decode(written)
    except json.JSONDecodeError as error:
        return error.pos >= len(written) or error.msg.startswith("Unterminated string")
    except (ValueError, RecursionError):
        return False
    return False


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    parsed: dict[str, Any] = {}
    for name, value in pairs:
        if name in parsed:
            raise ValueError(f"{shown(name)} stands there twice")
        for part in (name, value):
            if isinstance(part, str):
                part.encode("utf-8")  # raises ValueError on a lone surrogate
        parsed[name] = value
    return parsed


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _count(digits: str) -> int:
    if digits.startswith("-"):
        raise ValueError(f"{digits[:40]} is negative")
    return int(digits)

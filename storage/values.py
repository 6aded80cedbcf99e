"""What goes into the database: plain numbers and clean text, whatever was handed in.

A driver that meets a scalar of numpy or torch stores its bytes or fails; a NUL byte or a lone surrogate
in a name fails late. So everything passes here first.
"""

from __future__ import annotations

import hashlib
import math
import operator
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import IntEnum
from typing import SupportsFloat, SupportsIndex

MAX_WHOLE = 2**63 - 1
MAX_NAME_BYTES = 512
"""PostgreSQL indexes rows of at most about 2,700 bytes, and a series is unique in four names."""

_DIGEST_CHARACTERS = 16


class ValueKind(IntEnum):
    """How a sample's value is stored: only finite values fill the number column.

    SQLite keeps neither NaN (it becomes NULL) nor the sign of zero.
    """

    FINITE = 0
    UNDEFINED = 1
    NAN = 2
    POSITIVE_INFINITY = 3
    NEGATIVE_INFINITY = 4
    NEGATIVE_ZERO = 5


_SPECIAL: dict[int, float | None] = {
    ValueKind.UNDEFINED: None,
    ValueKind.NAN: math.nan,
    ValueKind.POSITIVE_INFINITY: math.inf,
    ValueKind.NEGATIVE_INFINITY: -math.inf,
    ValueKind.NEGATIVE_ZERO: -0.0,
}


def encoded(value: SupportsFloat | None) -> tuple[float | None, int]:
    """A sample's value as the number column and the kind column hold it."""
    if value is None:
        return None, int(ValueKind.UNDEFINED)
    number = float(value)
    if math.isfinite(number):
        negative_zero = number == 0 and math.copysign(1.0, number) < 0
        return (0.0, int(ValueKind.NEGATIVE_ZERO)) if negative_zero else (number, int(ValueKind.FINITE))
    if math.isnan(number):
        return None, int(ValueKind.NAN)
    return None, int(ValueKind.POSITIVE_INFINITY if number > 0 else ValueKind.NEGATIVE_INFINITY)


def decoded(number: float | None, kind: int) -> float | None:
    """The value that `encoded` was given."""
    return _SPECIAL[kind] if kind else number


def whole(number: SupportsIndex, what: str) -> int:
    """The number as a plain int.

    Raises:
        ValueError: it needs more than 64 bits; the message says of what.
    """
    plain_number = operator.index(number)
    if not -MAX_WHOLE - 1 <= plain_number <= MAX_WHOLE:
        raise ValueError(
            f"{what} of {plain_number.bit_length()} bits: the database holds whole numbers up to 2^63 - 1"
        )
    return plain_number


def nearest_whole(number: SupportsIndex) -> int:
    """The number, or the nearest that the database holds: bounds of a question need not be stored."""
    return max(-MAX_WHOLE - 1, min(operator.index(number), MAX_WHOLE))


def real(number: SupportsFloat | None) -> float | None:
    """The number as a plain float; None stays."""
    return None if number is None else float(number)


def text(value: str) -> str:
    r"""The text with NUL and lone surrogates written out, which no database takes.

    >>> text("a\0b")
    'a\\x00b'
    >>> text("\udc80")
    '\\udc80'
    """
    plain_text = str(value)
    if not plain_text.isascii():
        plain_text = plain_text.encode("utf-8", "backslashreplace").decode("utf-8")
    return plain_text.replace("\0", "\\x00")


def name(value: str) -> str:
    """The text, short enough for an index; what is cut off is told apart by its digest."""
    clean = text(value)
    if len(clean) * 4 <= MAX_NAME_BYTES:
        return clean
    data = clean.encode("utf-8")
    if len(data) <= MAX_NAME_BYTES:
        return clean
    digest = hashlib.sha256(data).hexdigest()[:_DIGEST_CHARACTERS]
    head = data[: MAX_NAME_BYTES - len("…".encode()) - _DIGEST_CHARACTERS].decode("utf-8", "ignore")
    return f"{head}…{digest}"


def moment(value: datetime) -> datetime:
    """The time in UTC.

    Raises:
        ValueError: it has no time zone.
    """
    if value.tzinfo is None:
        raise ValueError(f"{value.isoformat()} has no time zone")
    return value.astimezone(UTC)


def plain(value: object) -> object:
    """The value as JSON knows values, but for NaN and infinities, which stay.

    Raises:
        TypeError: it holds something that is neither text, number, mapping nor sequence.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return text(value)
    if isinstance(value, Mapping):
        return {text(str(key)): plain(element) for key, element in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(element) for element in value]
    return _plain_number(value)


def _plain_number(value: object) -> int | float:
    """Scalars of numpy and torch too; those of a floating type have an `__index__` that refuses."""
    if isinstance(value, SupportsIndex):
        try:
            return operator.index(value)
        except TypeError:
            pass
    if isinstance(value, SupportsFloat):
        return float(value)
    raise TypeError(f"a {type(value).__name__} has no place in JSON")

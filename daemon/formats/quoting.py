"""Values of an untrusted file in a message: short and cheap to show, whatever they are.

`repr` of them is neither: nested values that share their parts take exponential time, integers of more
than 4300 digits raise `ValueError`, deep nesting raises `RecursionError`.
"""

from __future__ import annotations

from typing import Final

MAX_SHOWN_CHARACTERS: Final = 80
MAX_SHOWN_ELEMENTS: Final = 8


def shown(value: object) -> str:
    """The value as Python would write it, or what it is where that would be long.

    >>> shown((3, [4, 5], "w"))
    "(3, [4, 5], 'w')"
    >>> shown(1 << 9000)
    'an integer of 9001 bits'
    """
    return _shown(value, depth=2)


def _shown(value: object, depth: int) -> str:
    if isinstance(value, str | bytes):
        rest = "…" if len(value) > MAX_SHOWN_CHARACTERS else ""
        return repr(value[:MAX_SHOWN_CHARACTERS]) + rest
    if type(value) is int and value.bit_length() > 64:
        return f"an integer of {value.bit_length()} bits"
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    if isinstance(value, list | tuple) and depth:
        parts = [_shown(element, depth - 1) for element in value[:MAX_SHOWN_ELEMENTS]]
        more = ["…"] if len(value) > MAX_SHOWN_ELEMENTS else []
        text = ", ".join(parts + more)
        return f"[{text}]" if isinstance(value, list) else f"({text})"
    return f"a {type(value).__name__}"

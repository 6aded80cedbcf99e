"""What a nested saved object holds: tensors under dotted paths, and plain values beside them.

The object comes from an untrusted pickle: its containers may be shared a thousandfold or contain
themselves. Each is visited once, the one nearest to the root first, so that the work grows with the
number of objects and not with the number of paths to them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from foreshock.daemon.errors import UnsupportedCheckpoint
from foreshock.daemon.formats.base import checked_tensor_name
from foreshock.daemon.formats.inert_values import Stub
from foreshock.daemon.formats.quoting import shown
from foreshock.daemon.formats.torch_zip import Refused, TensorRef

MAX_NESTING = 12
MAX_TENSORS = 1_000_000
MAX_PATH_CHARACTERS = 32 << 20
"""Of all paths in one file together: a deep path costs its length for every tensor below it."""

MAX_PLAIN_NESTING = 4
MAX_PLAIN_VALUES = 10_000
MAX_STRING_CHARACTERS = 65_536


def walk_tensors(content: Any, *, where: str) -> Iterator[tuple[str, TensorRef | Refused]]:
    """Every tensor of a nested state dict with its dotted path, readable or `Refused`.

    A container that is saved under two names is walked under the one nearer to the root.

    Raises:
        CorruptCheckpoint: a path that cannot be a name.
        UnsupportedCheckpoint: too many tensors, or too long paths in all.
    """
    num_tensors = num_characters = 0
    seen = {id(content)}
    queue: deque[tuple[str, Any, int]] = deque([("", content, 0)])
    while queue:
        path, value, depth = queue.popleft()
        if isinstance(value, TensorRef | Refused):
            num_tensors += 1
            if num_tensors > MAX_TENSORS:
                raise UnsupportedCheckpoint(f"{where}: more than {MAX_TENSORS} tensors in one file")
            yield checked_tensor_name(path, where=where), value
            continue
        if depth == MAX_NESTING:
            continue
        for key, child in _children(value):
            if isinstance(child, dict | list | tuple):
                if id(child) in seen:
                    continue
                seen.add(id(child))
            child_path = _joined(path, key)
            num_characters += len(child_path)
            if num_characters > MAX_PATH_CHARACTERS:
                raise UnsupportedCheckpoint(f"{where}: names of more than {MAX_PATH_CHARACTERS} characters")
            queue.append((child_path, child, depth + 1))


def _children(container: Any) -> Iterator[tuple[Any, Any]]:
    if not isinstance(container, dict | list | tuple):
        return
    for key, child in container.items() if isinstance(container, dict) else enumerate(container):
        if isinstance(child, TensorRef | Refused | dict | list | tuple):
            yield key, child


def _joined(path: str, key: Any) -> str:
    text = key if isinstance(key, str) else shown(key)
    return f"{path}.{text}" if path else text


def plain_values(content: Any) -> dict[str, Any]:
    """The numbers, strings and small mappings beside the tensors: step, model arguments.

    Long strings, integers beyond 64 bits, and whatever is nested deeper than `MAX_PLAIN_NESTING` are left
    out, as are mappings in which nothing remains.
    """
    plain: dict[str, Any] = {}
    num_values = 0
    seen: set[int] = set()
    queue: deque[tuple[Any, dict[str, Any], int]] = deque([(content, plain, 0)])
    while queue:
        value, into, depth = queue.popleft()
        mapping = value.state if isinstance(value, Stub) else value
        if not isinstance(mapping, dict) or id(mapping) in seen:
            continue
        seen.add(id(mapping))
        for key, child in mapping.items():
            if not (_is_plain(key) and isinstance(key, str | int)):
                continue
            if num_values == MAX_PLAIN_VALUES:
                break
            if _is_plain(child):
                into[str(key)] = child
                num_values += 1
            elif isinstance(child, dict | Stub) and depth + 1 < MAX_PLAIN_NESTING:
                inner: dict[str, Any] = {}
                into[str(key)] = inner
                queue.append((child, inner, depth + 1))
                num_values += 1
    return _without_empty(plain)


def _is_plain(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= MAX_STRING_CHARACTERS and _is_encodable(value)
    if type(value) is int:
        return value.bit_length() < 64
    return value is None or isinstance(value, bool | float)


def _is_encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _without_empty(mapping: dict[str, Any]) -> dict[str, Any]:
    """Without mappings that hold nothing; at most `MAX_PLAIN_NESTING` deep."""
    kept: dict[str, Any] = {}
    for key, value in mapping.items():
        if not isinstance(value, dict):
            kept[key] = value
        elif inner := _without_empty(value):
            kept[key] = inner
    return kept

"""What stands for objects of a pickle that is never run: names, and calls that did not happen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Global:
    """A name that a pickle refers to; never looked up."""

    module: str
    name: str

    @property
    def path(self) -> str:
        """Dotted, as in an import statement."""
        return f"{self.module}.{self.name}"


@dataclass(slots=True, eq=False)
class Stub:
    """What a call would have returned; hashed by identity, so it may be a key.

    Attributes:
        made_by: the callable or class, normally a `Global`.
        args: it was called with; for a call with keywords, the arguments and the keywords.
        state: given by BUILD: a dict, or what the class's own `__getstate__` gave.
        items: appended or added later.
    """

    made_by: Any
    args: tuple[Any, ...]
    state: Any = None
    items: list[Any] | tuple[()] = ()

    @property
    def path(self) -> str:
        """Dotted name of the class or function, or empty."""
        return self.made_by.path if isinstance(self.made_by, Global) else ""

    def attribute(self, name: str) -> Any:
        """An instance attribute, from a plain or slotted state; None when absent."""
        states = self.state[:2] if isinstance(self.state, tuple) else (self.state,)
        for state in states:
            if isinstance(state, dict) and name in state:
                return state[name]
        return None


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """A persistent id: data that lies outside of the pickle, such as a storage."""

    id: Any

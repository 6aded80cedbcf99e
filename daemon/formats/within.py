"""Frameworks whose checkpoint is a directory with the weights in a folder of a known name."""

from __future__ import annotations

import re
from dataclasses import dataclass

from foreshock.daemon.errors import IncompleteCheckpoint
from foreshock.daemon.formats.base import Checkpoint, Format, Location
from foreshock.daemon.formats.presented import present
from foreshock.daemon.formats.tree import below, folders


@dataclass(frozen=True, slots=True)
class Within:
    """One framework's habit.

    Attributes:
        name: of the framework's layout.
        folder: regular expression for the whole relative path of the folder.
        inner: how the folder is read.
        marker: file of the checkpoint that is written last; empty when the inner format knows best.
    """

    name: str
    folder: str
    inner: Format
    marker: str = ""

    @property
    def looks_for(self) -> str:
        """What makes this format claim a place."""
        return f"a folder {self.folder} with {self.inner.looks_for}"

    def claims(self, names: frozenset[str]) -> str:
        """What the inner format finds in the folder."""
        found = self._folders(names)
        return f"{found[0]}/{self.inner.claims(below(names, found[0]))}" if found else ""

    def open(self, location: Location) -> Checkpoint:
        """Open the folder; of several (as for several models), the first."""
        names = frozenset(location.names())
        if self.marker and self.marker not in names:
            raise IncompleteCheckpoint(f"{location.path}: {self.marker} is not there yet; it is written last")
        first, *others = self._folders(names)
        notes = (f"only {first} is read, not {', '.join(others[:5])}",) if others else ()
        inner = self.inner.open(location.within(first))
        return present(inner, self.name, notes=notes)

    def _folders(self, names: frozenset[str]) -> tuple[str, ...]:
        wanted = re.compile(self.folder)
        return tuple(
            each
            for each in folders(names)
            if wanted.fullmatch(each) and self.inner.claims(below(names, each))
        )

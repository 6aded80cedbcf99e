"""One look at a run's directory: which checkpoints are there, and which of them are whole.

Events only shorten the wait; what counts is this scan. It costs one `scandir` of the run, one `stat` per
settled checkpoint, and opens headers only of what is new or has changed. A scanner remembers between
looks since when a checkpoint has been quiet; that is judged by the monotonic clock and by sizes and
times having stopped to move, never by comparing a file's time with ours.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from foreshock.daemon.discovery.names import (
    may_hold_its_step,
    step_in_content,
    step_in_name,
)
from foreshock.daemon.discovery.signature import content_digest, list_files
from foreshock.daemon.errors import (
    CheckpointError,
    IncompleteCheckpoint,
    UnreadableCheckpoint,
    VanishedCheckpoint,
)
from foreshock.daemon.formats import claiming_format, open_checkpoint
from foreshock.daemon.formats.base import Checkpoint
from foreshock.daemon.formats.tree import open_directory

UNFINISHED_MARKER = "checkpoint-is-incomplete.txt"
"""What Hugging Face's Trainer keeps in a checkpoint that it saves on SIGTERM, until it is whole."""

RELISTED = 3
"""So many of the newest settled directories are listed at every scan, to see them overwritten in place."""


class Condition(StrEnum):
    """What a scan says of one checkpoint."""

    COMPLETE = "complete"
    WRITING = "writing"  # incomplete, or not quiet for long enough
    UNUSABLE = "unusable"  # whole, but corrupt, unsupported or unreadable
    SETTLED = "settled"  # known, and nothing was written since


@dataclass(frozen=True, slots=True)
class Known:
    """What the ledger remembers of a path."""

    step: int
    signature: str
    digest: str


@dataclass(frozen=True, slots=True)
class Sighting:
    """One checkpoint as it stands.

    Attributes:
        name: entry of the run's directory.
        step: None while a file that tells its step by its content is not readable yet.
        named: whether the step stands in the name.
        signature: of sizes and times; empty if it could not be listed.
        digest: of sampled content; empty unless complete or unusable.
        reason: why it is not complete.
    """

    name: str
    step: int | None
    named: bool
    condition: Condition
    signature: str = ""
    digest: str = ""
    format: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Scan:
    """One look.

    Attributes:
        root_error: why the run's directory could not be listed; empty when it could.
        sightings: by step, those without one last.
        ignored: entries that look like checkpoints but are not taken (staging, backups, links astray).
    """

    root_error: str
    sightings: tuple[Sighting, ...]
    ignored: tuple[str, ...]


@dataclass(slots=True)
class Scanner:
    """Looks at one run's directory again and again.

    Attributes:
        settle_seconds: a checkpoint must have been quiet for so long; 0 to trust its structure alone.
        clock: monotonic, in seconds.
    """

    root: Path
    settle_seconds: float
    clock: Callable[[], float] = time.monotonic
    _quiet_since: dict[str, tuple[str, float]] = field(default_factory=dict)
    _directory_times: dict[str, int] = field(default_factory=dict)

    def scan(self, known: Mapping[str, Known]) -> Scan:
        """Look once.

        Args:
            known: by entry name, the checkpoints that need no second look unless they change.
        """
        try:
            entries = sorted(self._candidates())
        except OSError as error:
            self._quiet_since.clear()
            return Scan(f"{self.root}: {error.strerror or error}", (), ())
        names = {name for name, _ in entries}
        self._quiet_since = {name: seen for name, seen in self._quiet_since.items() if name in names}
        recent = {name for _, name in sorted((known[n].step, n) for n in names if n in known)[-RELISTED:]}
        ignored: list[str] = []
        sightings: list[Sighting] = []
        for name, is_directory in entries:
            if not self._inside(name):
                ignored.append(f"{name}: a link that leads outside of the run's directory")
            elif is_directory and name in known and name not in recent and self._untouched(name):
                sightings.append(Sighting(name, known[name].step, True, Condition.SETTLED))
            else:
                sighting = self._look(name, known.get(name))
                if sighting is not None:
                    sightings.append(sighting)
        sightings.sort(key=lambda s: (s.step is None, s.step or 0, not s.named, s.name))
        return Scan("", tuple(sightings), tuple(ignored[:100]))

    def _candidates(self) -> Iterator[tuple[str, bool]]:
        """Entries that may be checkpoints, with whether they are directories."""
        directory = open_directory(self.root)
        try:
            yield from self._candidates_in(directory)
        finally:
            os.close(directory)

    def _candidates_in(self, directory: int) -> Iterator[tuple[str, bool]]:
        with os.scandir(directory) as entries:
            for entry in entries:
                named = step_in_name(entry.name) is not None
                try:
                    if entry.is_dir():
                        if named:
                            yield entry.name, True
                    elif entry.is_file() and (
                        named or (may_hold_its_step(entry.name) and claiming_format(frozenset({entry.name})))
                    ):
                        yield entry.name, False
                except OSError:  # a link in a circle, or gone between listing and asking
                    continue

    def _inside(self, name: str) -> bool:
        path = self.root / name
        try:
            if not path.is_symlink():
                return True
        except OSError:  # not ours to search: looking at it says so
            return True
        return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(self.root))

    def _untouched(self, name: str) -> bool:
        """Whether no entry was added to or removed from a directory since it was last listed."""
        try:
            modified = (self.root / name).stat().st_mtime_ns
        except OSError:
            return False
        return self._directory_times.get(name) == modified or self._remember(name, modified)

    def _remember(self, name: str, modified: int) -> bool:
        self._directory_times[name] = modified
        return False

    def _look(self, name: str, known: Known | None) -> Sighting | None:
        """List a candidate, and open it if it is new, changed and quiet."""
        path = self.root / name
        step = step_in_name(name)
        named = step is not None
        try:
            listing = list_files(path)
        except VanishedCheckpoint:
            return None
        except CheckpointError as error:
            return Sighting(name, step, named, Condition.UNUSABLE, reason=str(error))
        signature = listing.signature
        if known is not None and known.signature == signature:
            return Sighting(name, known.step, named, Condition.SETTLED, signature, known.digest)
        if listing.state(UNFINISHED_MARKER):
            reason = f"its writer's {UNFINISHED_MARKER} is still there"
            return Sighting(name, step, named, Condition.WRITING, signature, reason=reason)
        if not self._quiet(name, signature):
            return Sighting(
                name, step, named, Condition.WRITING, signature, reason="not quiet for long enough"
            )
        if named and claiming_format(listing.names) is None:
            return Sighting(name, step, named, Condition.WRITING, signature, reason="no weights in it yet")
        return self._open(name, step, signature)

    def _quiet(self, name: str, signature: str) -> bool:
        """Whether the signature has been the same for the settling time."""
        now = self.clock()
        seen, since = self._quiet_since.get(name, ("", now))
        if seen != signature:
            self._quiet_since[name] = (signature, now)
            since = now
        return now - since >= self.settle_seconds

    def _open(self, name: str, step: int | None, signature: str) -> Sighting | None:
        path, named = self.root / name, step is not None
        try:
            checkpoint: Checkpoint = open_checkpoint(path)
            digest = content_digest(path, checkpoint.files)
        except VanishedCheckpoint:
            return None
        except IncompleteCheckpoint as error:
            return Sighting(name, step, named, Condition.WRITING, signature, reason=str(error))
        except UnreadableCheckpoint as error:  # without a signature it is tried again at every scan
            return Sighting(name, step, named, Condition.UNUSABLE, reason=str(error))
        except CheckpointError as error:
            if not named:
                return None  # some other file of the job
            return Sighting(name, step, named, Condition.UNUSABLE, signature, signature, reason=str(error))
        step = step if named else step_in_content(checkpoint.metadata)
        if step is None:
            return None
        return Sighting(name, step, named, Condition.COMPLETE, signature, digest, checkpoint.format)

"""What is known of every checkpoint of a run, and what a new look at its directory means.

Every checkpoint ever listed ends as measured, partial, missed or quarantined. A step that is not beyond
the last one opens a new attempt: the job was restarted from an earlier checkpoint.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from foreshock.daemon.discovery.scan import Condition, Known, Scan, Sighting
from foreshock.storage.records import Attempt, CheckpointRecord, CheckpointState, Run
from foreshock.storage.store import Store

log = logging.getLogger(__name__)

MEASURED = frozenset({CheckpointState.MEASURED, CheckpointState.PARTIAL})
MAX_TRIES = 3
"""So often a checkpoint that changes under the reader is begun again."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One checkpoint of the run's directory, as last seen.

    Attributes:
        name: in the run's directory.
        attempt: id of the attempt it belongs to.
        tries: how often measuring it was begun.
    """

    name: str
    step: int
    attempt: int
    state: CheckpointState
    signature: str = ""
    digest: str = ""
    reason: str = ""
    tries: int = 0

    @property
    def fingerprint(self) -> str:
        """As stored in the database."""
        return f"{self.signature}:{self.digest}"


@dataclass(slots=True)
class Ledger:
    """The run's checkpoints; every change is written to the database at once.

    Attributes:
        incomplete_limit_seconds: so long an unfinished checkpoint may lie still before it is given up.
    """

    store: Store
    run: Run
    incomplete_limit_seconds: float
    clock: Callable[[], float] = time.monotonic
    _entries: dict[tuple[int, int], Entry] = field(default_factory=dict)  # by attempt and step
    _names: dict[str, tuple[int, int]] = field(default_factory=dict)  # the newest under a name
    _attempt: Attempt | None = None
    _stalled_since: dict[str, tuple[str, float]] = field(default_factory=dict)

    def load(self) -> None:
        """Take up where the database says we stopped."""
        attempts = {attempt.ordinal: attempt for attempt in self.store.attempts(self.run.id)}
        self._attempt = attempts[max(attempts)] if attempts else None
        records = self.store.checkpoints(self.run.id)
        for record in sorted(records, key=lambda record: (record.attempt, record.step)):
            self._put(_entry(record, attempts[record.attempt].id))

    def known(self) -> dict[str, Known]:
        """What the scanner need not look at again unless it changes."""
        return {
            name: Known(entry.step, entry.signature, entry.digest)
            for name, key in self._names.items()
            if (entry := self._entries[key]).state is not CheckpointState.PENDING and entry.signature
        }

    def latest_step(self, states: frozenset[CheckpointState] = frozenset(CheckpointState)) -> int | None:
        """The highest step of the current attempt in one of the states; None when there is none."""
        return max((entry.step for entry in self._current() if entry.state in states), default=None)

    def measured_before(self, entry: Entry) -> tuple[Entry, ...]:
        """Measured checkpoints of the entry's attempt below its step, the nearest first."""
        earlier = [
            other
            for (attempt, step), other in self._entries.items()
            if attempt == entry.attempt and step < entry.step and other.state in MEASURED
        ]
        return tuple(sorted(earlier, key=lambda other: -other.step))

    def count(self, state: CheckpointState) -> int:
        """How many checkpoints of the run are in a state."""
        return sum(entry.state is state for entry in self._entries.values())

    def take(self, scan: Scan) -> tuple[Entry, ...]:
        """Note what a scan saw; the complete checkpoints that are to be measured, by step."""
        if scan.root_error:
            return ()
        self._note_missing({sighting.name for sighting in scan.sightings})
        by_step = sorted(scan.sightings, key=lambda seen: (seen.step or 0, not seen.named, seen.name))
        ready = [entry for sighting in by_step if (entry := self._take_one(sighting))]
        return tuple(sorted(ready, key=lambda entry: (entry.attempt, entry.step)))

    def settle(self, entry: Entry, state: CheckpointState, reason: str = "") -> Entry:
        """Give an entry its state and write it down; measured ones are written with their samples."""
        settled = replace(entry, state=state, reason=reason)
        self._put(settled)
        if state not in MEASURED:
            self._write(settled)
        return settled

    def begin(self, entry: Entry) -> Entry:
        """Count a try at measuring."""
        begun = replace(entry, tries=entry.tries + 1)
        self._put(begun)
        return begun

    def forgive(self, entry: Entry) -> None:
        """Do not count the tries of a checkpoint that failed through no fault of its own."""
        self._put(replace(entry, tries=0))

    def _put(self, entry: Entry) -> None:
        key = (entry.attempt, entry.step)
        self._entries[key] = entry
        self._names[entry.name] = key

    def _current(self) -> Iterator[Entry]:
        if self._attempt is not None:
            for (attempt, _), entry in self._entries.items():
                if attempt == self._attempt.id:
                    yield entry

    def _named(self, name: str) -> Entry | None:
        key = self._names.get(name)
        return None if key is None else self._entries[key]

    def _take_one(self, sighting: Sighting) -> Entry | None:
        """The entry to measure, if the sighting is one that is complete and new."""
        if sighting.condition is Condition.SETTLED or sighting.step is None:
            return None
        known = self._named(sighting.name)
        if known is not None and known.state in MEASURED:
            if sighting.condition is not Condition.COMPLETE:
                return None  # being deleted or written again: judged once it is whole
            if known.digest == sighting.digest:
                self._put(replace(known, signature=sighting.signature))
                return None
        entry = self._placed(sighting, known)
        return None if entry is None else self._judge(sighting, entry)

    def _judge(self, sighting: Sighting, entry: Entry) -> Entry | None:
        """Write down a new sighting; the entry if it can be measured now."""
        if sighting.condition is Condition.COMPLETE and entry.tries < MAX_TRIES:
            return self.settle(entry, CheckpointState.PENDING, "complete, waiting to be measured")
        if sighting.condition is Condition.UNUSABLE:
            self._give_up(entry, sighting.reason)
        elif sighting.condition is Condition.WRITING:
            lain = self._lain_still(sighting)
            if lain > self.incomplete_limit_seconds:
                self._give_up(entry, f"incomplete for {lain:.0f} s: {sighting.reason}")
            elif (entry.state, entry.reason) != (CheckpointState.PENDING, sighting.reason):
                self.settle(entry, CheckpointState.PENDING, sighting.reason)
        return None

    def _give_up(self, entry: Entry, reason: str) -> None:
        """Quarantine it; only a change of its files brings it back."""
        if (entry.state, entry.reason) == (CheckpointState.QUARANTINED, reason):
            return
        self.settle(entry, CheckpointState.QUARANTINED, reason)
        log.warning("step %d is not measured: %s", entry.step, reason)

    def _lain_still(self, sighting: Sighting) -> float:
        """Seconds since the files of an unfinished checkpoint last changed, as far as we saw."""
        now = self.clock()
        seen, since = self._stalled_since.get(sighting.name, ("", now))
        if seen != sighting.signature:
            self._stalled_since[sighting.name] = (sighting.signature, now)
            return 0.0
        return now - since

    def _placed(self, sighting: Sighting, known: Entry | None) -> Entry | None:
        """The entry of a sighting in its attempt; None for a second copy of a step that we have."""
        assert sighting.step is not None
        if known is not None and known.step == sighting.step and known.state not in MEASURED:
            return replace(known, signature=sighting.signature, digest=sighting.digest)
        if known is not None and known.state is CheckpointState.PENDING:
            self.settle(known, CheckpointState.MISSED, "overwritten before it was measured")
        twins = (other for other in self._current() if other.step == sighting.step)
        if any(twin.name != sighting.name for twin in twins):
            return None
        attempt = self._attempt_of(sighting, known)
        if attempt is None:
            return None
        return Entry(
            sighting.name,
            sighting.step,
            attempt.id,
            CheckpointState.PENDING,
            sighting.signature,
            sighting.digest,
        )

    def _attempt_of(self, sighting: Sighting, known: Entry | None) -> Attempt | None:
        """The current attempt, or a new one when the step went back; None for a copy of an old step."""
        assert sighting.step is not None
        latest = self.latest_step()
        if self._attempt is None or latest is None:
            return self._open_attempt(sighting.step, "first checkpoint")
        if sighting.step > latest:
            return self._attempt
        if not sighting.named and known is None:
            return None  # such as `best.ckpt`: among files without a step only a rewritten one goes back
        return self._open_attempt(sighting.step, f"step {sighting.step} after step {latest}")

    def _open_attempt(self, first_step: int, reason: str) -> Attempt:
        self._attempt = self.store.open_attempt(self.run.id, first_step, reason)
        if self._attempt.ordinal > 1:
            log.warning("attempt %d begins: %s", self._attempt.ordinal, reason)
        return self._attempt

    def _note_missing(self, names: set[str]) -> None:
        for entry in list(self._entries.values()):
            if entry.state is CheckpointState.PENDING and entry.name not in names:
                self.settle(entry, CheckpointState.MISSED, "deleted before it was measured")
                log.warning("step %d is missed: deleted before it was measured", entry.step)

    def _write(self, entry: Entry) -> None:
        self.store.note_checkpoint(
            entry.attempt,
            step=entry.step,
            path=f"{self.run.path}/{entry.name}",
            state=entry.state,
            reason=entry.reason,
            fingerprint=entry.fingerprint,
        )


def _entry(record: CheckpointRecord, attempt_id: int) -> Entry:
    signature, _, digest = record.fingerprint.partition(":")
    return Entry(
        Path(record.path).name, record.step, attempt_id, record.state, signature, digest, record.reason
    )

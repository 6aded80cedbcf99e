"""What the ledger of checkpoints says about a run as a whole."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from foreshock.storage.records import CheckpointRecord, CheckpointState

MEASURED = frozenset({CheckpointState.MEASURED, CheckpointState.PARTIAL})


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is.

    Attributes:
        latest_step: newest step of the current attempt, complete or not.
        analyzed_step: newest measured step of the current attempt.
        analyzed_at: when a checkpoint was last measured.
        counts: checkpoints of all attempts by state, zeroes included.
        bytes_read: from checkpoints of all attempts.
        seconds: that measuring took, of all attempts.
    """

    latest_step: int | None
    analyzed_step: int | None
    analyzed_at: datetime | None
    counts: Mapping[CheckpointState, int]
    bytes_read: int
    seconds: float


def progress_of(checkpoints: Sequence[CheckpointRecord]) -> Progress:
    """Sum up the ledger of one run."""
    current = max((each.attempt for each in checkpoints), default=None)
    steps = {each.step: each.state for each in checkpoints if each.attempt == current}
    measured_at = [each.settled_at for each in checkpoints if each.state in MEASURED]
    counts = Counter(each.state for each in checkpoints)
    return Progress(
        latest_step=max(steps, default=None),
        analyzed_step=max((step for step, state in steps.items() if state in MEASURED), default=None),
        analyzed_at=max((moment for moment in measured_at if moment is not None), default=None),
        counts={state: counts[state] for state in CheckpointState},
        bytes_read=sum(each.bytes_read for each in checkpoints),
        seconds=math.fsum(each.seconds for each in checkpoints),
    )

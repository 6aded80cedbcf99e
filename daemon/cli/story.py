"""What a demo run showed, told from the stored numbers alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from foreshock.daemon.cli.headline import Headline
from foreshock.storage.records import Finding, Sample

CHECKPOINTS_AFTER_ONSET = 3
SMOOTHING_STEPS = 50
DIVERGED = 1.1
"""The loss counts as diverged once its smoothed value is so many times its best."""


@dataclass(slots=True)
class Story:
    """Collects a run checkpoint by checkpoint.

    Attributes:
        onset: last step before the fault; None in a healthy run.
    """

    onset: int | None
    lines: list[Headline] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    losses: dict[int, float] = field(default_factory=dict)

    def add(self, line: Headline, samples: Sequence[Sample], findings: Sequence[Finding]) -> None:
        """One measured checkpoint."""
        self.lines.append(line)
        self.findings.extend(findings)
        for sample in samples:
            if sample.key.metric == "training.loss" and sample.value is not None:
                self.losses[sample.step] = sample.value

    @property
    def first_finding(self) -> int | None:
        """Step at which a rule first spoke."""
        return min((finding.step for finding in self.findings), default=None)

    @property
    def divergence(self) -> int | None:
        """First step at which the smoothed loss is 10 % above its best; None if it never is."""
        best = float("inf")
        window: deque[tuple[int, float]] = deque()
        for step, loss in sorted(self.losses.items()):
            window.append((step, loss))
            while window[0][0] <= step - SMOOTHING_STEPS:
                window.popleft()
            smooth = fmean(value for _, value in window)
            best = min(best, smooth)
            if smooth > DIVERGED * best:
                return step
        return None

    @property
    def lead(self) -> int | None:
        """Steps from the first finding to the divergence of the loss."""
        if self.first_finding is None or self.divergence is None:
            return None
        return self.divergence - self.first_finding

    @property
    def as_expected(self) -> bool:
        """A planted fault was found before the loss diverged; a healthy run stayed quiet."""
        if self.onset is None:
            return not self.findings
        spoke = self.first_finding
        return (
            spoke is not None and spoke > self.onset and (self.divergence is None or spoke < self.divergence)
        )

    def tell(self) -> Iterator[str]:
        """The story in a few sentences."""
        if self.onset is not None:
            yield f"The fault was switched on after step {self.onset}."
            yield from self._fall()
        if self.first_finding is None:
            yield "No rule spoke."
        else:
            yield f"Foreshock spoke at step {self.first_finding}: {self.findings[0].message}"
        if self.divergence is None:
            yield "The loss never rose 10 % above its best."
        else:
            yield f"The loss was 10 % above its best at step {self.divergence}."
        if self.lead is not None:
            yield f"Foreshock was {self.lead} steps ahead of the loss."

    def _fall(self) -> Iterator[str]:
        """How far S₂ fell right after the onset."""
        assert self.onset is not None
        before = [line for line in self.lines if line.step <= self.onset]
        after = [line for line in self.lines if line.step > self.onset][:CHECKPOINTS_AFTER_ONSET]
        for name, attribute in (("ΔW_q", "update_rank"), ("Δ2", "qk_rank")):
            usual = getattr(before[-1], attribute) if before else None
            ranks = [(getattr(line, attribute), line.step) for line in after]
            known = [(rank, step) for rank, step in ranks if rank is not None]
            if usual is not None and known:
                lowest, step = min(known)
                change = f"{lowest / usual - 1:+.0%}"
                yield f"S₂({name}) went from {usual:.1f} to {lowest:.1f} by step {step} ({change})."

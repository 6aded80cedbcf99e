"""The few numbers of a checkpoint that fit on one line, taken from its samples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from foreshock.storage.records import Finding, Sample

LAG = 1


@dataclass(frozen=True, slots=True)
class Headline:
    """One checkpoint at a glance; None where nothing was measured.

    Attributes:
        loss: the last that the trainer logged up to this step.
        update_rank: smallest S₂(ΔW_q) of any layer, against the checkpoint before.
        qk_rank: smallest median over heads of S₂(Δ2) of any layer, likewise.
        persistence: largest cosine of consecutive ΔW_q of any layer.
        router_epsilon: smallest conditioning ε of any router.
    """

    step: int
    loss: float | None
    update_rank: float | None
    qk_rank: float | None
    persistence: float | None
    router_epsilon: float | None


def headline(step: int, samples: Sequence[Sample]) -> Headline:
    """Boil one checkpoint's samples down."""
    losses = [(sample.step, sample.value) for sample in samples if sample.key.metric == "training.loss"]
    heads: dict[int | None, list[float]] = {}
    for layer, value in _values(samples, "qk_first_order.effective_rank", "qk"):
        heads.setdefault(layer, []).append(value)
    updates = [value for _, value in _values(samples, "update.effective_rank", "q", whole=True)]
    cosines = [value for _, value in _values(samples, "update.persistence", "q", whole=True)]
    epsilons = [value for _, value in _values(samples, "router.conditioning", "router", lag=0)]
    return Headline(
        step,
        max(losses, default=(0, None))[1],
        min(updates, default=None),
        min(map(median, heads.values()), default=None),
        max(cosines, default=None),
        min(epsilons, default=None),
    )


def _values(
    samples: Iterable[Sample], metric: str, role: str, *, whole: bool = False, lag: int = LAG
) -> Iterable[tuple[int | None, float]]:
    for sample in samples:
        key = sample.key
        wanted = (key.metric, key.role, key.lag) == (metric, role, lag) and not (whole and key.unit)
        if wanted and sample.value is not None:
            yield key.layer, sample.value


HEADER = "  step     loss  S₂(ΔW_q)   S₂(Δ2)  persistence  router ε"
"""Titles of the columns of `row`."""


def row(line: Headline, findings: Sequence[Finding]) -> str:
    """One line of text, findings at its end."""
    said = "".join(f"  ◀ {finding.severity}: {finding.rule}, {finding.subject}" for finding in findings)
    return (
        f"{line.step:>6}  {_number(line.loss, 3):>7}  {_number(line.update_rank, 2):>8}"
        f"  {_number(line.qk_rank, 2):>7}  {_number(line.persistence, 2):>11}"
        f"  {_number(line.router_epsilon, 2):>8}{said}"
    )


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"

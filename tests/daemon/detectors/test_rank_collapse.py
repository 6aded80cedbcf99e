from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pytest

from foreshock.daemon.detectors.base import Point
from foreshock.daemon.detectors.rank_collapse import RankCollapse, falls_along
from foreshock.storage.records import Finding, SeriesKey

Values = Sequence[float]


class Past:
    """A history of one layer, a checkpoint every 50 steps."""

    def __init__(self, series: Mapping[tuple[str, str, str], Values], length: int) -> None:
        self._series = series
        self._length = length

    @property
    def step(self) -> int:
        return 50 * self._length

    def points(self, metric: str, *, role: str, lag: int) -> Iterable[tuple[SeriesKey, Sequence[Point]]]:
        for (name, of, unit), values in self._series.items():
            if (name, of, 1) == (metric, role, lag):
                points = [Point(50 * (i + 1), v) for i, v in enumerate(values[: self._length])]
                yield SeriesKey(metric, 3, role, "w", unit, lag), points


def spoken(series: Mapping[tuple[str, str, str], Values]) -> list[Finding]:
    """All findings while the run goes on, checkpoint by checkpoint."""
    length = max(map(len, series.values()))
    return [f for n in range(1, length + 1) for f in RankCollapse().judge(Past(series, n))]


Q = ("update.effective_rank", "q", "")
PERSISTENCE = ("update.persistence", "q", "")
HEALTHY = [17.0, 16.5, 17.4, 17.2, 16.9, 17.1, 17.3, 17.0]


def test_a_steady_series_says_nothing() -> None:
    assert spoken({Q: HEALTHY * 3, PERSISTENCE: [0.1] * 24}) == []


def test_a_fall_warns_at_once_and_is_critical_when_updates_persist() -> None:
    found = spoken({Q: [*HEALTHY, 5.0, 4.0, 3.0], PERSISTENCE: [0.1] * 9 + [0.8, 0.9]})
    assert [(f.step, f.severity) for f in found] == [(450, "warning"), (500, "critical")]
    assert "layer 3" in found[0].message
    assert found[1].evidence["usual"] == pytest.approx(17.05)


def test_a_collapse_is_not_repeated_at_every_checkpoint_nor_does_it_become_usual() -> None:
    found = spoken({Q: [*HEALTHY, *[4.0] * 30], PERSISTENCE: [0.1] * 9 + [0.9] * 29})
    assert [f.severity for f in found] == ["warning", "critical"]


def test_the_early_fall_of_a_young_run_says_nothing() -> None:
    assert spoken({Q: [11.0, 9.1, 7.0, 4.2, 4.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0]}) == []


def test_a_collapse_that_recovers_and_returns_is_told_again() -> None:
    found = spoken({Q: [*HEALTHY, 5.0, 17.0, 17.0, 5.0]})
    assert [f.step for f in found] == [450, 600]


def test_heads_are_judged_by_their_median() -> None:
    one_head = {("qk_first_order.effective_rank", "qk", f"head.{i}"): [4.0] * 9 for i in range(4)}
    one_head["qk_first_order.effective_rank", "qk", "head.0"] = [*[4.0] * 8, 1.0]
    assert spoken(one_head) == []
    all_heads = {key: [*[4.0] * 8, 1.5] for key in one_head}
    assert [f.step for f in spoken(all_heads)] == [450]


def test_the_heads_of_a_projection_are_not_taken_for_the_whole() -> None:
    assert spoken({("update.effective_rank", "q", "head.0"): [*HEALTHY, 1.0]}) == []


def test_a_gap_at_the_step_judged_says_nothing() -> None:
    past = Past({Q: [*HEALTHY, 1.0]}, 10)
    assert list(RankCollapse().judge(past)) == []


def test_a_fall_to_exactly_the_threshold_is_none() -> None:
    values = dict(enumerate([10.0] * 6 + [5.0, 4.99]))
    assert [fall is not None for fall in falls_along("s", values)] == [False] * 7 + [True]

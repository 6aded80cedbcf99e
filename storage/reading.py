"""The questions that a store answers."""

from __future__ import annotations

from functools import partial

from foreshock.storage.database import Database
from foreshock.storage.queries import catalogue, findings, ledger, overview, runs, series, statuses
from foreshock.storage.queries.overview import Statistic, UnitKind
from foreshock.storage.queries.series import SeriesFilter
from foreshock.storage.records import (
    Attempt,
    CheckpointRecord,
    Facet,
    Heatmap,
    Metric,
    Run,
    Sample,
    Series,
    SeriesKey,
    Status,
    StoredFinding,
)


class Reading:
    """Every answer is of one consistent state; all raise `StorageError` where the database fails.

    Names, ordinals and bounds that nothing matches give empty answers, whatever they are; ids and limits
    are taken as given.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def metrics(self) -> tuple[Metric, ...]:
        """The catalogue, by name."""
        return self._database.read(catalogue.all_metrics)

    def runs(self) -> tuple[Run, ...]:
        """Every run, the oldest first."""
        return self._database.read(runs.all_runs)

    def run(self, name: str) -> Run | None:
        """The run of that name."""
        return self._database.read(partial(runs.run_named, name=name))

    def attempts(self, run_id: int) -> tuple[Attempt, ...]:
        """The attempts of a run, in order."""
        return self._database.read(partial(runs.attempts_of, run_id=run_id))

    def checkpoints(
        self, run_id: int, *, attempt: int | None = None, limit: int | None = None
    ) -> tuple[CheckpointRecord, ...]:
        """The ledger by attempt and step.

        Args:
            attempt: ordinal; None for all attempts.
            limit: how many, the newest; None for all.
        """
        question = partial(ledger.select_checkpoints, run_id=run_id, ordinal=attempt, limit=limit)
        return self._database.read(question)

    def series(
        self,
        run_id: int,
        metric: str,
        *,
        attempt: int | None = None,
        layer: int | None = None,
        role: str | None = None,
        parameter: str | None = None,
        unit: str | None = None,
        lag: int | None = None,
        from_step: int | None = None,
        to_step: int | None = None,
        limit_series: int = 1000,
    ) -> tuple[Series, ...]:
        """The series that match, by key; some may have no sample in the stretch.

        Args:
            attempt: ordinal; None for the latest.
            layer: None for any, also for series outside of the blocks.
            unit: empty for the whole matrix; `*` or None for any.
            from_step: the first step wanted.
            to_step: the last step wanted.
            limit_series: how many, the first by key.
        """
        wanted = SeriesFilter(
            metric=metric,
            attempt=attempt,
            layer=layer,
            role=role,
            parameter=parameter,
            unit=unit,
            lag=lag,
            from_step=from_step,
            to_step=to_step,
        )
        question = partial(series.select_series, run_id=run_id, wanted=wanted, limit=limit_series)
        return self._database.read(question)

    def history(
        self, attempt_id: int, metric: str, *, role: str, lag: int, before_step: int | None, limit: int
    ) -> tuple[Series, ...]:
        """The most recent past of the series that match, ascending, by key.

        Args:
            before_step: only steps below; None for all.
            limit: samples of each series, the last; at least 1.
        """
        question = partial(
            series.select_history,
            attempt_id=attempt_id,
            wanted=SeriesFilter(metric=metric, role=role, lag=lag),
            before_step=before_step,
            limit=limit,
        )
        return self._database.read(question)

    def latest(self, run_id: int) -> tuple[tuple[SeriesKey, Sample], ...]:
        """The newest sample of every series of the latest attempt, by key."""
        return self._database.read(partial(series.select_latest, run_id=run_id))

    def heatmap(
        self,
        run_id: int,
        metric: str,
        *,
        role: str,
        lag: int,
        attempt: int | None = None,
        statistic: Statistic = "median",
        unit_kind: UnitKind = "any",
    ) -> Heatmap:
        """One number for every layer and step: the statistic of the finite values of its units.

        Args:
            attempt: ordinal; None for the latest.
            unit_kind: which units are taken together; `whole` is the whole matrix.
        """
        question = partial(
            overview.select_heatmap,
            run_id=run_id,
            metric=metric,
            role=role,
            lag=lag,
            ordinal=attempt,
            statistic=statistic,
            unit_kind=unit_kind,
        )
        return self._database.read(question)

    def facets(self, run_id: int) -> tuple[Facet, ...]:
        """Which metrics, roles and lags the run has series of."""
        return self._database.read(partial(overview.select_facets, run_id=run_id))

    def findings(self, run_id: int, *, limit: int = 100) -> tuple[StoredFinding, ...]:
        """The findings of a run, the newest first."""
        return self._database.read(partial(findings.select_findings, run_id=run_id, limit=limit))

    def unannounced(self, limit: int = 100) -> tuple[StoredFinding, ...]:
        """The findings of every run that wait to be announced, the oldest first."""
        return self._database.read(partial(findings.select_unannounced, limit=limit))

    def statuses(self) -> tuple[Status, ...]:
        """What every component last said of itself, by name."""
        return self._database.read(statuses.all_statuses)

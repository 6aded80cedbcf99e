"""`/metrics/{metric}`: the series of one metric."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, HTTPException, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from foreshock.api.bounds import (
    MAX_ORDINAL,
    MAX_POINTS,
    MAX_POINTS_PER_REPLY,
    MAX_SERIES,
    MAX_SERIES_READ,
    MAX_STEP,
)
from foreshock.api.lookup import RUN_HELP, TheStore, find_run
from foreshock.api.paging import decode_cursor, encode_cursor
from foreshock.api.replies import json_of_run, measurements_etag, not_modified
from foreshock.api.schemas import SeriesItem, SeriesPage
from foreshock.api.text import one_line
from foreshock.api.thinning import MIN_POINTS, thin
from foreshock.storage.records import Run, Series
from foreshock.storage.store import Store

router = APIRouter(tags=["metrics"])


class SeriesQuery(BaseModel):
    """Filters; one that is absent lets everything pass."""

    model_config = ConfigDict(extra="forbid")

    run: str | None = Field(None, description=f"{RUN_HELP} May be absent while there is only one run.")
    attempt: int | None = Field(None, ge=1, le=MAX_ORDINAL, description="Absent for the latest.")
    layer: int | None = Field(None, ge=0, le=MAX_ORDINAL)
    role: str | None = None
    parameter: str | None = None
    unit: str | None = Field(None, description="`head.3`; empty for the whole matrix.")
    lag: int | None = Field(None, ge=0, le=MAX_ORDINAL)
    from_step: int | None = Field(None, ge=0, le=MAX_STEP)
    to_step: int | None = Field(None, ge=0, le=MAX_STEP)
    max_points: int = Field(1000, ge=MIN_POINTS, le=MAX_POINTS, description="Of each series.")
    limit: int = Field(MAX_SERIES, ge=1, le=MAX_SERIES, description="Series in one reply.")
    cursor: str | None = Field(None, max_length=64, description="`next_cursor` of the reply before.")


@router.get("/metrics/{metric:path}", response_model=SeriesPage)
def series(
    request: Request, store: TheStore, metric: Annotated[str, Path()], query: Annotated[SeriesQuery, Query()]
) -> Response:
    """Series over steps, thinned so that ends, extremes and gaps stay."""
    run = _run(store, query.run)
    etag = measurements_etag(request, store, run)
    if (unchanged := not_modified(request, etag)) is not None:
        return unchanged
    start = decode_cursor(query.cursor)
    stop = start + query.limit
    if stop > MAX_SERIES_READ:
        raise HTTPException(422, f"cursor: only {MAX_SERIES_READ} series can be paged through; add filters.")
    found = _read(store, run, metric, query, num_series=stop + 1)
    if not found and not any(known.name == metric for known in store.metrics()):
        raise HTTPException(404, f"No metric is called {one_line(metric)!r}; `/metrics` lists them as JSON.")
    next_cursor = encode_cursor(stop) if len(found) > stop else None
    return json_of_run(_page(run.name, metric, found[start:stop], query.max_points, next_cursor), etag)


def _page(
    run: str, metric: str, found: Sequence[Series], max_points: int, next_cursor: str | None
) -> SeriesPage:
    points_each = max(MIN_POINTS, min(max_points, MAX_POINTS_PER_REPLY // max(len(found), 1)))
    thinned = [thin(each, points_each) for each in found]
    return SeriesPage(
        run=run,
        metric=metric,
        max_points=points_each,
        downsampled=any(len(each.steps) < each.source_points for each in thinned),
        truncated=next_cursor is not None,
        next_cursor=next_cursor,
        series=[SeriesItem.of(each) for each in thinned],
    )


def _run(store: Store, reference: str | None) -> Run:
    if reference is not None:
        return find_run(store, reference)
    runs = store.runs()
    if len(runs) != 1:
        raise HTTPException(422, f"run: say which of the {len(runs)} runs; `/runs` lists them.")
    return runs[0]


def _read(store: Store, run: Run, metric: str, query: SeriesQuery, *, num_series: int) -> tuple[Series, ...]:
    return store.series(
        run.id,
        metric,
        attempt=query.attempt,
        layer=query.layer,
        role=query.role,
        parameter=query.parameter,
        unit=query.unit,
        lag=query.lag,
        from_step=query.from_step,
        to_step=query.to_step,
        limit_series=num_series,
    )

"""A metric over layers and steps: the whole run in one look."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from foreshock.api.bounds import MAX_ORDINAL
from foreshock.api.lookup import TheRun, TheStore
from foreshock.api.replies import json_of_run, measurements_etag, not_modified
from foreshock.api.schemas import HeatmapReply
from foreshock.storage.queries.overview import Statistic, UnitKind

router = APIRouter(tags=["runs"])


class HeatmapQuery(BaseModel):
    """Which map; `/runs/{run}/facets` lists the combinations that there are."""

    model_config = ConfigDict(extra="forbid")

    metric: str
    role: str
    lag: int = Field(0, ge=0, le=MAX_ORDINAL)
    attempt: int | None = Field(None, ge=1, le=MAX_ORDINAL, description="Absent for the latest.")
    statistic: Statistic = Field("median", description="Of the units' finite values.")
    units: UnitKind = Field("any", description="Which units are taken together.")


@router.get("/runs/{run}/heatmap", response_model=HeatmapReply)
def heatmap(
    request: Request, store: TheStore, run: TheRun, query: Annotated[HeatmapQuery, Query()]
) -> Response:
    """One number for every layer and step; null where nothing finite was measured."""
    etag = measurements_etag(request, store, run)
    if (unchanged := not_modified(request, etag)) is not None:
        return unchanged
    found = store.heatmap(
        run.id,
        query.metric,
        role=query.role,
        lag=query.lag,
        attempt=query.attempt,
        statistic=query.statistic,
        unit_kind=query.units,
    )
    reply = HeatmapReply(
        run=run.name,
        attempt=found.attempt,
        metric=query.metric,
        role=query.role,
        lag=query.lag,
        statistic=query.statistic,
        units=query.units,
        layers=list(found.layers),
        steps=list(found.steps),
        values=[list(row) for row in found.values],
    )
    return json_of_run(reply, etag)

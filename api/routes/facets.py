"""Which metrics, roles and lags a run has."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from foreshock.api.lookup import TheRun, TheStore
from foreshock.api.replies import json_of_run, measurements_etag, not_modified
from foreshock.api.schemas import FacetItem, FacetList

router = APIRouter(tags=["runs"])


@router.get("/runs/{run}/facets", response_model=FacetList)
def facets(request: Request, store: TheStore, run: TheRun) -> Response:
    """The choices that the run offers."""
    etag = measurements_etag(request, store, run)
    if (unchanged := not_modified(request, etag)) is not None:
        return unchanged
    items = [FacetItem.model_validate(each) for each in store.facets(run.id)]
    return json_of_run(FacetList(run=run.name, items=items), etag)

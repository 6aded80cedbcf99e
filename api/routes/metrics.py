"""`/metrics`: a scrape for Prometheus, the catalogue for everybody else."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from foreshock.api.exposition import Exposition
from foreshock.api.lookup import TheStore
from foreshock.api.negotiation import preferred
from foreshock.api.replies import json_reply
from foreshock.api.schemas import Catalogue, MetricItem

router = APIRouter(tags=["metrics"])


@router.get(
    "/metrics",
    response_model=Catalogue,
    responses={200: {"content": {"text/plain": {}, "application/openmetrics-text": {}}}},
)
def metrics(request: Request, store: TheStore) -> Response:
    """Prometheus text or OpenMetrics for clients that accept them, else the catalogue as JSON."""
    representation = preferred(", ".join(request.headers.getlist("accept")))
    if representation == "json":
        items = [MetricItem.model_validate(each) for each in store.metrics()]
        reply = json_reply(request, Catalogue(items=items))
    else:
        exposition: Exposition = request.app.state.exposition
        text, content_type = exposition.encode(representation)
        reply = Response(text, headers={"content-type": content_type, "cache-control": "no-store"})
    reply.headers["vary"] = "accept"
    return reply

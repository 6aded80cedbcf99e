"""The ledger: what became of every checkpoint that was ever seen."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from foreshock.api.ledger import progress_of
from foreshock.api.lookup import TheRun, TheStore
from foreshock.api.paging import PageQuery, cut
from foreshock.api.replies import json_reply
from foreshock.api.schemas import CheckpointItem, CheckpointPage

router = APIRouter(tags=["runs"])


@router.get("/runs/{run}/checkpoints", response_model=CheckpointPage)
def checkpoints(
    request: Request, store: TheStore, run: TheRun, query: Annotated[PageQuery, Query()]
) -> Response:
    """Checkpoints of all attempts, the newest first."""
    ledger = sorted(store.checkpoints(run.id), key=lambda each: (each.attempt, each.step), reverse=True)
    shown, next_cursor = cut(ledger, query)
    reply = CheckpointPage(
        run=run.name,
        counts=dict(progress_of(ledger).counts),
        items=[CheckpointItem.model_validate(each) for each in shown],
        next_cursor=next_cursor,
    )
    return json_reply(request, reply)

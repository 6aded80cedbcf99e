"""The runs that the database knows."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from foreshock.api.ledger import progress_of
from foreshock.api.lookup import TheStore
from foreshock.api.paging import PageQuery, cut
from foreshock.api.replies import json_reply
from foreshock.api.schemas import AttemptItem, RunItem, RunPage
from foreshock.storage.records import Run
from foreshock.storage.store import Store

router = APIRouter(tags=["runs"])


@router.get("/runs", response_model=RunPage)
def runs(request: Request, store: TheStore, query: Annotated[PageQuery, Query()]) -> Response:
    """Every run, the newest first."""
    newest_first = sorted(store.runs(), key=lambda run: run.id, reverse=True)
    shown, next_cursor = cut(newest_first, query)
    items = [_item(store, run) for run in shown]
    return json_reply(request, RunPage(items=items, next_cursor=next_cursor))


def _item(store: Store, run: Run) -> RunItem:
    progress = progress_of(store.checkpoints(run.id))
    return RunItem(
        id=run.id,
        name=run.name,
        path=run.path,
        created_at=run.created_at,
        attempts=[AttemptItem.model_validate(each) for each in store.attempts(run.id)],
        latest_step=progress.latest_step,
        analyzed_step=progress.analyzed_step,
        analyzed_at=progress.analyzed_at,
    )

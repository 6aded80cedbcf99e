"""What the detectors found."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from foreshock.api.lookup import TheRun, TheStore
from foreshock.api.replies import json_reply
from foreshock.api.schemas import FindingItem, FindingList

router = APIRouter(tags=["runs"])


class FindingsQuery(BaseModel):
    """How many findings to show."""

    model_config = ConfigDict(extra="forbid")

    limit: int = Field(100, ge=1, le=1000, description="Findings in the reply, the newest first.")


@router.get("/runs/{run}/findings", response_model=FindingList)
def findings(
    request: Request, store: TheStore, run: TheRun, query: Annotated[FindingsQuery, Query()]
) -> Response:
    """The newest findings of the run."""
    items = [FindingItem.of(each) for each in store.findings(run.id, limit=query.limit)]
    return json_reply(request, FindingList(run=run.name, items=items))

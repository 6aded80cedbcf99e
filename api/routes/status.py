"""What the watchers last said of themselves."""

from __future__ import annotations

from datetime import UTC, datetime

from fastapi import APIRouter, Request, Response

from foreshock.api.health import is_fresh
from foreshock.api.lookup import TheStore
from foreshock.api.replies import json_reply
from foreshock.api.schemas import ComponentStatus, StatusReply

router = APIRouter(tags=["health"])


@router.get("/status", response_model=StatusReply)
def status(request: Request, store: TheStore) -> Response:
    """Every component with its last report; 200 also when they are in trouble."""
    now = datetime.now(UTC)
    components = [
        ComponentStatus(
            component=each.component,
            updated_at=each.updated_at,
            healthy=each.healthy,
            fresh=is_fresh(each, now),
            detail=each.detail,
        )
        for each in store.statuses()
    ]
    return json_reply(request, StatusReply(version=request.app.version, components=components))

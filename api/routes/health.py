"""Is the process alive, is the service of use, and what version is it."""

from __future__ import annotations

from datetime import UTC, datetime

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from foreshock.api.health import complaint
from foreshock.api.lookup import TheStore
from foreshock.api.problems import problem
from foreshock.api.schemas import Check, Liveness, Readiness, VersionReply
from foreshock.storage.errors import StorageError
from foreshock.storage.store import Store

router = APIRouter(tags=["health"])

_NO_STORE = {"cache-control": "no-store"}


@router.get("/livez", response_model=Liveness)
async def livez() -> Response:
    """The process answers; nothing else is asked."""
    return JSONResponse(Liveness().model_dump(), headers=_NO_STORE)


@router.get("/readyz", response_model=Readiness)
def readyz(store: TheStore) -> Response:
    """The database answers and every watcher reports that it is well, else 503 with the reasons."""
    checks = _checks(store)
    reply = Readiness(ready=all(check.ok for check in checks), checks=checks)
    if reply.ready:
        return JSONResponse(reply.model_dump(), headers=_NO_STORE)
    failing = "; ".join(f"{check.name}: {check.detail}" for check in checks if not check.ok)
    return problem(503, f"Not ready. {failing}", **reply.model_dump())


@router.get("/version", response_model=VersionReply)
async def version(request: Request) -> Response:
    """The version that answers."""
    return JSONResponse(VersionReply(version=request.app.version).model_dump(), headers=_NO_STORE)


def _checks(store: Store) -> list[Check]:
    try:
        statuses = store.statuses()
    except StorageError as error:
        return [Check(name="database", ok=False, detail=str(error))]
    now = datetime.now(UTC)
    complaints = [(status.component, complaint(status, now)) for status in statuses]
    watchers = [Check(name=name, ok=not detail, detail=detail) for name, detail in complaints]
    return [Check(name="database", ok=True, detail=""), *watchers]

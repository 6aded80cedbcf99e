"""The application: routes over one store, behind the checks that every request passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI

from foreshock.api.exposition import Exposition
from foreshock.api.head import HeadAsGet
from foreshock.api.headers import SecurityHeaders
from foreshock.api.limits import BodyLimit, ConcurrencyLimit
from foreshock.api.problems import PROBLEM_SCHEMA, install_problem_handlers
from foreshock.api.routes import ROUTERS
from foreshock.api.security import LOOPBACK_NAMES, BearerToken, HostAllowList
from foreshock.storage.store import Store

_PROBLEM: Mapping[str, Any] = {
    "description": "A problem as in RFC 9457.",
    "content": {"application/problem+json": {"schema": PROBLEM_SCHEMA}},
}


def create_app(
    store: Store, *, token: str | None = None, allowed_hosts: Sequence[str] = LOOPBACK_NAMES, version: str
) -> FastAPI:
    """An application that answers from the store; it writes nothing.

    Args:
        token: if set, every route that holds data asks for it.
        allowed_hosts: names and addresses under which clients may reach us, without port; `*` for any.
        version: told to clients.

    Raises:
        ValueError: the token is empty, which would let nobody or everybody in.
    """
    if token is not None and not token.strip():
        raise ValueError("the token is empty: give None for no token")
    app = FastAPI(
        title="Foreshock",
        version=version,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses={"4XX": dict(_PROBLEM), "5XX": dict(_PROBLEM)},
    )
    app.state.store = store
    app.state.exposition = Exposition(store, version)
    app.state.needs_token = token is not None
    install_problem_handlers(app)
    for router in ROUTERS:
        app.include_router(router)
    _install_checks(app, token, allowed_hosts)
    return app


def _install_checks(app: FastAPI, token: str | None, allowed_hosts: Sequence[str]) -> None:
    """The one added last sees a request first."""
    app.add_middleware(HeadAsGet)
    app.add_middleware(ConcurrencyLimit)
    if token is not None:
        app.add_middleware(BearerToken, token=token.strip())
    app.add_middleware(BodyLimit)
    app.add_middleware(HostAllowList, names=allowed_hosts)
    app.add_middleware(SecurityHeaders)

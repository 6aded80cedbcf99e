"""The routes, one file per subject."""

from __future__ import annotations

from fastapi import APIRouter

from foreshock.api.routes import (
    checkpoints,
    facets,
    findings,
    health,
    heatmap,
    metrics,
    page,
    runs,
    series,
    status,
)

ROUTERS: tuple[APIRouter, ...] = (
    page.router,
    metrics.router,
    series.router,
    runs.router,
    checkpoints.router,
    heatmap.router,
    facets.router,
    findings.router,
    status.router,
    health.router,
)

"""Which representation of `/metrics` a client prefers: a scrape's text, or JSON."""

from __future__ import annotations

from typing import Literal

Representation = Literal["prometheus", "openmetrics", "json"]

_TYPES: dict[str, Representation] = {
    "text/plain": "prometheus",
    "text/*": "prometheus",
    "*/*": "prometheus",
    "application/openmetrics-text": "openmetrics",
    "application/json": "json",
    "application/*": "json",
}


def preferred(accept: str) -> Representation:
    """What to send for an Accept header, empty when there is none.

    OpenMetrics and Prometheus text come before JSON where the client likes them equally: scrapers and
    command lines say `*/*`, programs that want JSON say so. JSON also answers clients that accept
    neither, so that nobody gets 406.
    """
    weights: dict[Representation, float] = {"prometheus": 0.0, "openmetrics": 0.0, "json": 0.0}
    for entry in (accept or "*/*").split(","):
        media_type, *parameters = (part.strip().lower() for part in entry.split(";"))
        if (kind := _TYPES.get(media_type)) is not None:
            weights[kind] = max(weights[kind], _quality(parameters))
    if weights["json"] > max(weights["prometheus"], weights["openmetrics"]):
        return "json"
    if weights["openmetrics"] > 0 and weights["openmetrics"] >= weights["prometheus"]:
        return "openmetrics"
    return "prometheus" if weights["prometheus"] > 0 else "json"


def _quality(parameters: list[str]) -> float:
    """The weight `q` of RFC 9110 §12.4.2, between 0 and 1; nonsense counts as 0."""
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                weight = float(value)
            except ValueError:
                return 0.0
            return weight if 0.0 <= weight <= 1.0 else 0.0
    return 1.0

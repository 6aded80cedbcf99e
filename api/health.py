"""Whether anybody watches: judged from what the watchers last said of themselves."""

from __future__ import annotations

from datetime import datetime, timedelta

from foreshock.storage.records import Status

MISSED_REPORTS = 3
"""So many intervals may pass without a word."""

USUAL_INTERVAL_SECONDS = 60.0
HISTORY = timedelta(days=1)
"""A watcher that has been silent for longer is the past, not an outage."""

ENDED = "stopped"
"""What a watcher that was asked to stop says last."""


def interval_seconds(status: Status) -> float:
    """How often the component reports; 60 s when it does not say."""
    said = status.detail.get("interval_seconds")
    if isinstance(said, int | float) and 0 < said <= HISTORY.total_seconds():
        return float(said)
    return USUAL_INTERVAL_SECONDS


def age_seconds(status: Status, now: datetime) -> float:
    """Seconds since it last reported; 0 when our clocks disagree."""
    return max(0.0, (now - status.updated_at).total_seconds())


def is_fresh(status: Status, now: datetime) -> bool:
    """Whether it reported within three of its own intervals."""
    return age_seconds(status, now) <= MISSED_REPORTS * interval_seconds(status)


def is_over(status: Status, now: datetime) -> bool:
    """Whether it ended on purpose or is long gone: nobody waits for it."""
    return status.detail.get("last_error") == ENDED or now - status.updated_at > HISTORY


def complaint(status: Status, now: datetime) -> str:
    """Why the component makes us not ready; empty when it does not."""
    if is_over(status, now):
        return ""
    if not is_fresh(status, now):
        allowed = MISSED_REPORTS * interval_seconds(status)
        return f"last heard of {age_seconds(status, now):.0f} s ago, {allowed:.0f} s are allowed"
    if not status.healthy:
        return str(status.detail.get("last_error") or "it says that it is not healthy")
    return ""

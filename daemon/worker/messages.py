"""Samples and errors on their way through the pipe."""

from __future__ import annotations

from typing import Any

from foreshock.daemon import errors
from foreshock.daemon.errors import CheckpointError, ConfigError, WorkerError
from foreshock.storage.records import Sample, SeriesKey


def pack_sample(sample: Sample) -> list[Any]:
    """A sample as a JSON list; NaN and ±Inf survive, as both sides are Python."""
    key = sample.key
    return [
        key.metric,
        key.layer,
        key.role,
        key.parameter,
        key.unit,
        key.lag,
        sample.step,
        sample.value,
        sample.base_step,
        sample.reason,
    ]


def unpack_sample(fields: list[Any]) -> Sample:
    """The sample again."""
    return Sample(SeriesKey(*fields[:6]), *fields[6:])


def error_of(message: dict[str, Any]) -> CheckpointError | ConfigError | WorkerError:
    """The error that a `failure` message stands for, to be raised on this side."""
    kind = getattr(errors, str(message.get("error")), None)
    text = str(message.get("message"))
    if isinstance(kind, type) and issubclass(kind, CheckpointError | ConfigError):
        return kind(text)
    return WorkerError(text)

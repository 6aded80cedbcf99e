"""The process that reads tensors and computes."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

import torch

from foreshock.daemon.errors import CheckpointError, ConfigError
from foreshock.daemon.monitors import CATALOGUE
from foreshock.daemon.pipeline.measure import Outcome, Progress, measure
from foreshock.daemon.pipeline.request import MeasureRequest
from foreshock.daemon.pipeline.training_log import METRICS
from foreshock.daemon.worker.channel import Channel
from foreshock.daemon.worker.messages import pack_sample


def serve(channel: Channel, arguments: list[str]) -> None:
    """Answer requests: `catalogue` for a device, or `measure` with the fields of a `MeasureRequest`.

    The argument is the number of threads to compute with.
    """
    torch.set_num_threads(int(arguments[0]))
    torch.set_grad_enabled(False)
    for request in channel.requests():
        if request["ask"] == "catalogue":
            _introduce(channel, request["device"])
        else:
            _answer(channel, request["request"])


def _introduce(channel: Channel, device: str) -> None:
    """Say what can be measured, once it is sure that the device computes."""
    try:
        torch.ones(2, 2, dtype=torch.float64, device=device).sum().item()
    except (RuntimeError, AssertionError) as error:  # torch's own, by build and driver
        reason = str(error).splitlines()[0]
        channel.send("failure", error="ConfigError", message=f"device {device} cannot be used: {reason}")
    else:
        channel.send("result", metrics=[asdict(metric) for metric in (*CATALOGUE, *METRICS)])


def _answer(channel: Channel, fields: dict[str, Any]) -> None:
    try:
        for event in measure(MeasureRequest.from_json(fields)):
            if isinstance(event, Progress):
                channel.send("progress", **asdict(event))
            elif isinstance(event, Outcome):
                channel.send("result", outcome=asdict(event))
            else:
                channel.send("samples", samples=[pack_sample(sample) for sample in event])
    except (CheckpointError, ConfigError) as error:
        channel.send("failure", error=type(error).__name__, message=str(error))
    sys.stderr.flush()

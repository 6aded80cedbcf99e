"""The process that tells what a checkpoint is, from headers alone: it never imports torch."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from foreshock.daemon.discovery.names import step_in_content, step_in_name
from foreshock.daemon.errors import CheckpointError, ConfigError
from foreshock.daemon.formats import claims_on, open_checkpoint
from foreshock.daemon.formats.base import READABLE_DTYPES, Checkpoint, Location
from foreshock.daemon.pipeline.configuration import model_config
from foreshock.daemon.roles import HeadsOverride, resolve
from foreshock.daemon.roles.base import RoleMap
from foreshock.daemon.worker.channel import Channel


def serve(channel: Channel, arguments: list[str]) -> None:
    """Answer requests with `path`, `heads` (three numbers) and `config`."""
    del arguments
    for request in channel.requests():
        try:
            channel.send("result", **describe(Path(request["path"]), request["heads"], request["config"]))
        except (CheckpointError, ConfigError) as error:
            channel.send("failure", error=type(error).__name__, message=str(error))


def describe(path: Path, heads: list[int], config_path: str) -> dict[str, Any]:
    """Format, step, sharding, roles and what has none, as JSON-encodable values."""
    checkpoint = open_checkpoint(path)
    claims = claims_on(Location.of(path).names_meant())
    config = model_config(checkpoint, path, config_path)
    roles = resolve(checkpoint.tensors, config, HeadsOverride(*heads))
    step = step_in_name(path.name)
    return {
        "path": str(path),
        "format": checkpoint.format,
        "claims": [{"format": claim.format.name, "by": claim.reason} for claim in claims],
        "step": step if step is not None else step_in_content(checkpoint.metadata),
        "files": list(checkpoint.files),
        "tensors": len(checkpoint.tensors),
        "parameters": sum(info.num_elements for info in checkpoint.tensors.values()),
        "bytes": sum(info.num_bytes for info in checkpoint.tensors.values()),
        "dtypes": dict(Counter(info.dtype for info in checkpoint.tensors.values())),
        "unreadable": _unreadable(checkpoint),
        "config": config.source,
        **_roles(roles, checkpoint),
        "notes": [*checkpoint.notes, *roles.warnings],
    }


def _unreadable(checkpoint: Checkpoint) -> list[str]:
    return [name for name, info in checkpoint.tensors.items() if info.dtype not in READABLE_DTYPES]


def _roles(roles: RoleMap, checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "architecture": roles.architecture,
        "layers": [
            {
                "index": layer.index,
                "heads": asdict(layer.heads) if layer.heads else None,
                "roles": {
                    role.value: {
                        "name": layer.names[role],
                        "saved_as": part.parameter,
                        "dtype": checkpoint.tensors[part.parameter].dtype,
                        "shape": list(checkpoint.tensors[part.parameter].shape),
                    }
                    for role, part in layer.parts.items()
                },
            }
            for layer in roles.layers
        ],
        "bytes_read": sum(checkpoint.tensors[name].num_bytes for name in roles.parameters),
        "unassigned": list(roles.unassigned),
    }

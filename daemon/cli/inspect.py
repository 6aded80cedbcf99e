"""`foreshock inspect`: what a checkpoint is, from its headers alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from foreshock.daemon.cli import options
from foreshock.daemon.worker.messages import error_of
from foreshock.daemon.worker.process import Worker

SHOWN_NAMES = 20
SILENCE_SECONDS = 300.0


def inspect(
    path: Annotated[Path, typer.Argument(help="A checkpoint: a directory or a file.")],
    *,
    heads: options.NumHeads = None,
    kv_heads: options.KvHeads = None,
    head_dim: options.HeadDim = None,
    model_config: options.ModelConfigFile = None,
    as_json: options.AsJson = False,
) -> None:
    """Tell a checkpoint's format, step, sharding and roles; tensor data is never read.

    Exit code 0 means that it is complete and can be measured as described; 65 that it cannot be read,
    and the message says why.
    """
    worker = Worker("inspect")
    request = {
        "path": str(path.absolute()),
        "heads": [heads, kv_heads, head_dim],
        "config": str(model_config.absolute()) if model_config else "",
    }
    try:
        *_, answer = worker.ask(request, silence_seconds=SILENCE_SECONDS)
    finally:
        worker.kill()
    if answer["type"] == "failure":
        raise error_of(answer)
    del answer["type"]
    if as_json:
        typer.echo(json.dumps(answer, indent=2))
    else:
        _show(answer, Console(highlight=False, markup=False))


def _show(seen: dict[str, Any], console: Console) -> None:
    dtypes = ", ".join(f"{count} {dtype}" for dtype, count in sorted(seen["dtypes"].items()))
    facts = {
        "format": seen["format"],
        "recognised": _recognised(seen["claims"]),
        "step": "unknown" if seen["step"] is None else str(seen["step"]),
        "complete": "yes: every header agrees with its file",
        "files": f"{len(seen['files'])}: {_few(seen['files'])}",
        "tensors": f"{seen['tensors']} ({dtypes}), {seen['parameters']:,} parameters",
        "size": f"{seen['bytes'] / 1e6:,.1f} MB; {seen['bytes_read'] / 1e6:,.1f} MB of it would be read",
        "architecture": seen["architecture"],
        "configuration": seen["config"] or "none found",
    }
    for name, value in facts.items():
        console.print(f"{name:>14}  {value}")
    if seen["layers"]:
        console.print(_layers(seen["layers"]))
    names = seen["unassigned"]
    console.print(f"{len(names)} tensors have no role: {_few(names)}" if names else "every tensor has a role")
    if seen["unreadable"]:
        console.print(f"{len(seen['unreadable'])} cannot be measured by dtype: {_few(seen['unreadable'])}")
    for note in seen["notes"]:
        console.print(f"note: {note}")


def _recognised(claims: list[dict[str, str]]) -> str:
    """By what the format was recognised, and which looser ones would have taken it as well."""
    first, *others = claims
    looser = ", ".join(f"{claim['format']} by {claim['by']}" for claim in others)
    also = f"; the stricter wins over {looser}" if others else ""
    return f"by {_few([first['by']])}{also}"


def _layers(layers: list[dict[str, Any]]) -> Table:
    table = Table("layer", "heads", "parameters by role", box=None, pad_edge=False, header_style="bold")
    for layer in layers:
        heads = layer["heads"]
        split = f"{heads['num_heads']}/{heads['num_kv_heads']} × {heads['head_dim']}" if heads else "unknown"
        roles = ", ".join(
            f"{role} {'×'.join(map(str, part['shape']))}" for role, part in layer["roles"].items()
        )
        table.add_row(str(layer["index"]), split, roles)
    return table


def _few(names: list[str]) -> str:
    """The first names, made harmless for a terminal, and how many more there are."""
    shown = ", ".join(name.encode("unicode_escape").decode()[:80] for name in names[:SHOWN_NAMES])
    return shown + (f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else "")

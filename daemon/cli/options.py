"""Options that several commands share, and the settings that follow from them."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from foreshock.daemon.config import Settings, load_settings

ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="TOML file with settings.", envvar="FORESHOCK_CONFIG")
]
StateDir = Annotated[Path | None, typer.Option(help="Directory of the database and the base cache.")]
DatabaseUrl = Annotated[str | None, typer.Option("--database", help="SQLAlchemy URL of the database.")]
RunName = Annotated[str | None, typer.Option("--run", help="Name of the run; the directory's by default.")]
Lags = Annotated[
    list[int] | None,
    typer.Option("--lag", help="Checkpoints between the ends of a difference; repeat for several."),
]
Device = Annotated[str | None, typer.Option(help="cpu, cuda or cuda:N. A GPU is used only when named.")]
Threads = Annotated[int | None, typer.Option(help="CPU threads that compute.")]
NumHeads = Annotated[int | None, typer.Option("--heads", help="Query heads, if no config.json tells.")]
KvHeads = Annotated[int | None, typer.Option(help="Key and value heads, if no config.json tells.")]
HeadDim = Annotated[int | None, typer.Option(help="Rows per head, if no config.json tells.")]
ModelConfigFile = Annotated[
    Path | None, typer.Option("--model-config", help="config.json of the model, if it lies elsewhere.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
LogLevel = Annotated[str | None, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")]
Host = Annotated[str | None, typer.Option(help="Address of the API. Others than loopback need a token.")]
Port = Annotated[int | None, typer.Option(help="Port of the API; 0 for any free one.")]
TokenFile = Annotated[Path | None, typer.Option(help="File with the API's bearer token.")]


def settings_from(config: Path | None, *, lags: list[int] | None = None, **given: Any) -> Settings:
    """The settings, with logging set up as they say.

    Raises:
        ConfigError: a key or value is wrong.
    """
    settings = load_settings(config, lags=tuple(lags) if lags else None, **given)
    logging.basicConfig(
        level=settings.log_level,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)-7s %(message)s",
        datefmt="%H:%M:%S",
    )
    logging.getLogger("alembic").setLevel(logging.WARNING)
    return settings

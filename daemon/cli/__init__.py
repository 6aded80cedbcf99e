"""The command line: `foreshock watch|measure|inspect|serve|demo|db`.

Exit codes: 0 done or stopped cleanly · 64 wrong usage · 65 a checkpoint that cannot be read ·
69 the database, a port or a reading process is not to be had · 78 wrong configuration ·
130 and 143 ended by a second SIGINT or SIGTERM.
"""

from __future__ import annotations

import logging
import sys
from importlib.metadata import version
from typing import Annotated

import typer

from foreshock.api.server import ServerError
from foreshock.daemon.cli import database, demo, inspect, measure, serve, watch
from foreshock.daemon.errors import CheckpointError, ConfigError, WorkerError
from foreshock.storage.errors import StorageError

USAGE, DATA, UNAVAILABLE, CONFIG = 64, 65, 69, 78
_TYPER_USAGE = 2

log = logging.getLogger(__name__)

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=(
        "Watches the checkpoints of an LLM training run and tells that it will diverge before the loss does."
        "\n\nThe training code never changes; nothing is ever written beside the checkpoints."
    ),
    epilog="Exit codes: 0 done, 64 usage, 65 unreadable checkpoint, 69 unavailable, 78 configuration.",
)
app.command()(watch.watch)
app.command()(measure.measure)
app.command()(inspect.inspect)
app.command()(serve.serve)
app.command()(demo.demo)
app.add_typer(database.app, name="db")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"foreshock {version('foreshock')}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of the program as a whole."""


def main() -> None:
    """Run the command line; ends the process with one of the exit codes above."""
    sys.exit(_run())


def _run() -> int:
    try:
        app(prog_name="foreshock")
    except SystemExit as exit_:
        code = exit_.code if isinstance(exit_.code, int) else 0
        return USAGE if code == _TYPER_USAGE else code
    except ConfigError as error:
        return _say(error, CONFIG)
    except CheckpointError as error:
        return _say(error, DATA)
    except (WorkerError, StorageError, ServerError) as error:
        return _say(error, UNAVAILABLE)
    return 0


def _say(error: Exception, code: int) -> int:
    typer.echo(f"foreshock: {error}", err=True)
    return code

"""`foreshock db`: the database's schema and soundness."""

from __future__ import annotations

import typer

from foreshock.daemon.cli import options
from foreshock.storage.store import Store

app = typer.Typer(help="Look after the database.", no_args_is_help=True)


@app.command()
def upgrade(
    config: options.ConfigFile = None,
    state_dir: options.StateDir = None,
    database: options.DatabaseUrl = None,
) -> None:
    """Bring the schema to this version's; may be killed and run again."""
    settings = options.settings_from(config, state_dir=state_dir, database_url=database)
    with Store.open(settings.url):
        typer.echo("the schema is up to date")


@app.command()
def check(
    config: options.ConfigFile = None,
    state_dir: options.StateDir = None,
    database: options.DatabaseUrl = None,
) -> None:
    """Look for damage; exit code 1 if there is any."""
    settings = options.settings_from(config, state_dir=state_dir, database_url=database)
    with Store.open(settings.url, migrate=False, read_only=True) as store:
        problems = store.check()
    for problem in problems:
        typer.echo(problem)
    if problems:
        raise typer.Exit(1)
    typer.echo("sound")

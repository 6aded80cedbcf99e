"""`foreshock watch`: observe a run live, with API and dashboard."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from foreshock.api.app import create_app
from foreshock.api.server import ApiServer
from foreshock.daemon.cli import options
from foreshock.daemon.cli.session import observed_run
from foreshock.daemon.config import LOOPBACK, Settings
from foreshock.daemon.watch.loop import Loop
from foreshock.storage.store import Store

log = logging.getLogger(__name__)


def watch(
    checkpoints: Annotated[Path, typer.Argument(help="The directory that the job saves into.")],
    *,
    config: options.ConfigFile = None,
    state_dir: options.StateDir = None,
    database: options.DatabaseUrl = None,
    run: options.RunName = None,
    lag: options.Lags = None,
    device: options.Device = None,
    threads: options.Threads = None,
    heads: options.NumHeads = None,
    kv_heads: options.KvHeads = None,
    head_dim: options.HeadDim = None,
    model_config: options.ModelConfigFile = None,
    interval: Annotated[float | None, typer.Option(help="Seconds between two scans.")] = None,
    settle: Annotated[
        float | None, typer.Option(help="Seconds that a checkpoint must lie still before it is read.")
    ] = None,
    host: options.Host = None,
    port: options.Port = None,
    token_file: options.TokenFile = None,
    log_level: options.LogLevel = None,
) -> None:
    """Watch a directory of checkpoints: measure what appears, serve the numbers, and warn.

    The directory need not exist yet. Nothing is ever written into it. SIGTERM ends cleanly; the next
    start goes on where this one stopped.
    """
    settings = options.settings_from(
        config,
        lags=lag,
        state_dir=state_dir,
        database_url=database,
        run=run,
        device=device,
        threads=threads,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        model_config_file=model_config,
        interval_seconds=interval,
        settle_seconds=settle,
        host=host,
        port=port,
        token_file=token_file,
        log_level=log_level,
    )
    with observed_run(settings, checkpoints, caching=True) as observer:
        loop = Loop(observer)
        with serving(settings, observer.store) as url, stopping_on_signals(loop.stop):
            log.info("watching %s as run %r · dashboard at %s", observer.run.path, observer.run.name, url)
            loop.run()


@contextmanager
def serving(settings: Settings, store: Store) -> Iterator[str]:
    """The API in a thread of its own; yields its URL.

    Raises:
        ServerError: the address is taken.
    """
    app = create_app(
        store,
        token=settings.secret or None,
        allowed_hosts=(*LOOPBACK, settings.host, *settings.allowed_hosts),
        version=version("foreshock"),
    )
    server = ApiServer(app, host=settings.host, port=settings.port)
    port = server.start()
    try:
        yield f"http://{settings.host}:{port}"
    finally:
        server.stop()


@contextmanager
def stopping_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and SIGINT stop; a second one ends the process at once."""

    def on_signal(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, lambda again, _: os._exit(128 + again))
        stop()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

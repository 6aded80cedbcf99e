"""`foreshock serve`: the API and the dashboard alone, over what is already stored."""

from __future__ import annotations

import logging
import threading

from foreshock.daemon.cli import options
from foreshock.daemon.cli.watch import serving, stopping_on_signals
from foreshock.storage.store import Store

log = logging.getLogger(__name__)


def serve(
    *,
    config: options.ConfigFile = None,
    state_dir: options.StateDir = None,
    database: options.DatabaseUrl = None,
    host: options.Host = None,
    port: options.Port = None,
    token_file: options.TokenFile = None,
    log_level: options.LogLevel = None,
) -> None:
    """Serve an existing database: REST, Prometheus and the dashboard; nothing is measured."""
    settings = options.settings_from(
        config,
        state_dir=state_dir,
        database_url=database,
        host=host,
        port=port,
        token_file=token_file,
        log_level=log_level,
    )
    stopped = threading.Event()
    with (
        Store.open(settings.url, migrate=False, read_only=True) as store,
        serving(settings, store) as url,
        stopping_on_signals(stopped.set),
    ):
        log.info("serving %s at %s", settings.url.split("@")[-1], url)
        stopped.wait()

"""One run opened for observation: its database, its lock, its observer."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain, count
from pathlib import Path

from foreshock.daemon.alerts import NOTIFIERS
from foreshock.daemon.config import Settings
from foreshock.daemon.detectors import DETECTORS
from foreshock.daemon.errors import ConfigError
from foreshock.daemon.watch.ledger import Entry
from foreshock.daemon.watch.observer import Observer
from foreshock.storage.records import Run
from foreshock.storage.store import Store

SAYS_NOTHING = frozenset({"checkpoint", "checkpoints", "ckpt", "ckpts", "output", "outputs", "out"})
"""Directory names that tell no run from another; the parent's name then stands before them."""

Progress = Callable[[Entry, int, int], None]


@contextmanager
def observed_run(
    settings: Settings,
    directory: Path,
    *,
    caching: bool,
    settle_seconds: float | None = None,
    on_progress: Progress = lambda _entry, _done, _total: None,
) -> Iterator[Observer]:
    """An observer of the directory, alone on its run.

    Raises:
        ConfigError: the state directory lies in the run's, or another process observes the run.
        StorageError: the database is not to be had.
    """
    root = Path(os.path.abspath(directory))  # noqa: PTH100 - resolving links would touch the job's mount
    state = settings.state_dir.expanduser().absolute()
    if state.is_relative_to(root):
        raise ConfigError(
            f"state_dir {state} lies in the run's directory {root}, where nothing may be written;"
            " give another with --state-dir"
        )
    with Store.open(settings.url) as store:
        run = _run_of(store, settings.run, root)
        with _lock(state / "locks" / f"run-{run.id}.lock", root):
            observer = Observer(
                store,
                run,
                root,
                settings,
                DETECTORS,
                NOTIFIERS,
                caching=caching,
                settle_seconds=settle_seconds,
                on_progress=on_progress,
            )
            try:
                yield observer
            finally:
                observer.close()


def _run_of(store: Store, wanted: str, root: Path) -> Run:
    """The run of that name, or of that directory; two directories of one name are told apart."""
    if wanted:
        return store.ensure_run(wanted, str(root))
    told = str(root).encode("utf-8", "backslashreplace").decode()  # as the database keeps it
    known = {run.name: run.path for run in store.runs()}
    for name, path in known.items():
        if path == told:
            return store.ensure_run(name, path)
    plain = root.name or "root"
    longer = f"{root.parent.name}-{plain}"
    wanted_names = chain(
        [] if plain in SAYS_NOTHING else [plain], [longer], (f"{longer}-{n}" for n in count(2))
    )
    return store.ensure_run(next(name for name in wanted_names if name not in known), str(root))


@contextmanager
def _lock(path: Path, root: Path) -> Iterator[None]:
    """Hold the run, so that no second process measures it into the same database."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(f"{root} is already observed by another foreshock process ({path})") from None
        yield
